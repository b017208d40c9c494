"""noise2text: embedding-space diffusion models for sequence-to-sequence text generation.

    >>> import noise2text
    >>> model = noise2text.load("de-en", device="cpu", precision="float32")
    >>> model("Ich habe zwei Brüder.")
    'I have two brothers.'

What this module lists is the public API; everything else may change between versions (CONTRIBUTING.md).
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from noise2text.core.errors import Problem
from noise2text.core.version import __version__

if TYPE_CHECKING:
    from noise2text.commands.generate import generate
    from noise2text.commands.train import train
    from noise2text.core.config import Config, option, section
    from noise2text.data.config import DataConfig
    from noise2text.data.layouts.base import Canvas, Layout
    from noise2text.data.tokenizer import Tokenizer
    from noise2text.diffusion.losses import LossTerm, TokenLoss
    from noise2text.diffusion.parameterization import Parameterization
    from noise2text.diffusion.schedules import AlphaBarSchedule, Rescaled, Schedule
    from noise2text.diffusion.solvers import Solver
    from noise2text.diffusion.time_samplers import TimeSampler
    from noise2text.generation.config import (
        AutoregressiveGenerationConfig,
        DiffusionGenerationConfig,
        LengthPredictingGenerationConfig,
    )
    from noise2text.generation.decoder import Decoder, SentenceCandidates
    from noise2text.generation.selection import Selector
    from noise2text.metrics.evaluate import evaluate
    from noise2text.models.autoregressive import AutoregressiveModel
    from noise2text.models.base import Model
    from noise2text.models.diffusion import DiffusionModel, LengthPredictingModel
    from noise2text.models.folder import load, save
    from noise2text.models.output import GenerationOutput, TextOutput
    from noise2text.models.registry import Recipe, list_recipes, register
    from noise2text.nn.config import EncoderDecoderConfig, JointTransformerConfig
    from noise2text.nn.denoiser import Denoiser, Estimate, NoiseLevel
    from noise2text.training.callbacks import TrainingCallback, TrainingStart
    from noise2text.training.config import OptimConfig, RunConfig
    from noise2text.training.loggers import TensorBoardLogger, TrackioLogger, WandbLogger
    from noise2text.training.objective import DiffusionObjective, Objective

_MODULES = {
    "AlphaBarSchedule": "diffusion.schedules",
    "AutoregressiveGenerationConfig": "generation.config",
    "AutoregressiveModel": "models.autoregressive",
    "Canvas": "data.layouts.base",
    "Config": "core.config",
    "DataConfig": "data.config",
    "Decoder": "generation.decoder",
    "Denoiser": "nn.denoiser",
    "DiffusionGenerationConfig": "generation.config",
    "DiffusionModel": "models.diffusion",
    "DiffusionObjective": "training.objective",
    "EncoderDecoderConfig": "nn.config",
    "Estimate": "nn.denoiser",
    "GenerationOutput": "models.output",
    "JointTransformerConfig": "nn.config",
    "Layout": "data.layouts.base",
    "LengthPredictingGenerationConfig": "generation.config",
    "LengthPredictingModel": "models.diffusion",
    "LossTerm": "diffusion.losses",
    "Model": "models.base",
    "NoiseLevel": "nn.denoiser",
    "Objective": "training.objective",
    "OptimConfig": "training.config",
    "Parameterization": "diffusion.parameterization",
    "Recipe": "models.registry",
    "Rescaled": "diffusion.schedules",
    "RunConfig": "training.config",
    "Schedule": "diffusion.schedules",
    "Selector": "generation.selection",
    "SentenceCandidates": "generation.decoder",
    "Solver": "diffusion.solvers",
    "TensorBoardLogger": "training.loggers",
    "TextOutput": "models.output",
    "TimeSampler": "diffusion.time_samplers",
    "TokenLoss": "diffusion.losses",
    "Tokenizer": "data.tokenizer",
    "TrackioLogger": "training.loggers",
    "TrainingCallback": "training.callbacks",
    "TrainingStart": "training.callbacks",
    "WandbLogger": "training.loggers",
    "evaluate": "metrics.evaluate",
    "generate": "commands.generate",
    "list_recipes": "models.registry",
    "load": "models.folder",
    "option": "core.config",
    "register": "models.registry",
    "save": "models.folder",
    "section": "core.config",
    "train": "commands.train",
}
"""Where each public name is defined; it is imported when it is first used, because most need torch."""

# Threads that spin while they wait slow everything down many times over when other programs are busy. OpenMP
# reads this when torch is imported, which nothing above does.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

__all__ = [  # noqa: RUF022, in the order in which a newcomer needs them
    "Problem",
    "__version__",
    "load",
    "generate",
    "train",
    "evaluate",
    "save",
    "list_recipes",
    "register",
    "Recipe",
    "Model",
    "DiffusionModel",
    "LengthPredictingModel",
    "AutoregressiveModel",
    "GenerationOutput",
    "TextOutput",
    "TrainingCallback",
    "TrainingStart",
    "TensorBoardLogger",
    "WandbLogger",
    "TrackioLogger",
    "Config",
    "option",
    "section",
    "DataConfig",
    "EncoderDecoderConfig",
    "JointTransformerConfig",
    "OptimConfig",
    "RunConfig",
    "DiffusionGenerationConfig",
    "LengthPredictingGenerationConfig",
    "AutoregressiveGenerationConfig",
    "Tokenizer",
    "Layout",
    "Canvas",
    "Denoiser",
    "Estimate",
    "Schedule",
    "AlphaBarSchedule",
    "Rescaled",
    "NoiseLevel",
    "Parameterization",
    "TimeSampler",
    "LossTerm",
    "TokenLoss",
    "Objective",
    "DiffusionObjective",
    "Solver",
    "Decoder",
    "SentenceCandidates",
    "Selector",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'noise2text' has no attribute {name!r}")
    return getattr(import_module(f"noise2text.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
