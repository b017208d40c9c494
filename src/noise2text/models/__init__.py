"""Models: generation and likelihoods of trained models, model folders, and the registry of recipes."""

from noise2text.models.autoregressive import AutoregressiveModel
from noise2text.models.base import GenerationOutput, Model, TraceStep
from noise2text.models.diffusion import DiffusionModel, LengthPredictingModel

__all__ = [
    "AutoregressiveModel",
    "DiffusionModel",
    "GenerationOutput",
    "LengthPredictingModel",
    "Model",
    "TraceStep",
]
