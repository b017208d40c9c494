"""Models: generation and likelihoods of trained models, model folders, and the registry of recipes."""

from noise2text.models.autoregressive import AutoregressiveModel
from noise2text.models.base import Model
from noise2text.models.diffusion import DiffusionModel, LengthPredictingModel
from noise2text.models.output import GenerationOutput, TextOutput, TraceStep

__all__ = [
    "AutoregressiveModel",
    "DiffusionModel",
    "GenerationOutput",
    "LengthPredictingModel",
    "Model",
    "TextOutput",
    "TraceStep",
]
