"""Models: what every trained model can do, whatever it is made of."""

from noise2text.models.autoregressive import AutoregressiveModel
from noise2text.models.diffusion import DiffusionModel, LengthPredictingModel
from noise2text.models.model import GenerationOutput, Model, TraceStep

__all__ = [
    "AutoregressiveModel",
    "DiffusionModel",
    "GenerationOutput",
    "LengthPredictingModel",
    "Model",
    "TraceStep",
]
