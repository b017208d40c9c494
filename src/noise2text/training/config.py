"""The sections `optim` and `run` of a recipe's config: how weights are updated, and how a run is kept."""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.core.config import Config, option, require_at_least, require_choice
from noise2text.core.errors import Problem
from noise2text.training.lr_schedules import LR_SCHEDULES

__all__ = ["OptimConfig", "RunConfig", "ValidationConfig"]


@dataclass(frozen=True)
class OptimConfig(Config):
    """The section `optim` of a recipe's config: AdamW, its learning rate, batches and averages of weights.

    Its fields are settings; `noise2text config difformer` prints them with their help.

    >>> from noise2text import OptimConfig
    >>> OptimConfig(steps=3_000, lr=1.5e-3, lr_schedule="cosine").warmup
    10000
    """

    steps: int = option(300_000, "number of updates")
    max_tokens: int = option(8_192, "padded tokens of the longer side in a batch, over all processes")
    accumulate: int = option(1, "micro-batches per update; each has max_tokens tokens")
    lr: float = option(5e-4, "peak learning rate")
    betas: tuple[float, float] = option((0.9, 0.98), "Adam's β₁ and β₂")
    weight_decay: float = option(0.01, "AdamW's weight decay")
    lr_schedule: str = option("inverse-sqrt", "how lr falls: inverse-sqrt, linear, cosine or constant")
    warmup: int = option(10_000, "updates over which lr rises from 0")
    clip_norm: float = option(1.0, "largest norm of the gradient; 0 does not clip")
    ema_decay: float = option(0.0, "decay of the moving average of the weights, e.g. 0.999; 0 for none")
    average_best: int = option(1, "number of best validations whose weights are averaged in the end")

    def __post_init__(self) -> None:
        require_choice(self, "lr_schedule", LR_SCHEDULES)
        require_at_least(self, 1, "steps", "max_tokens", "accumulate", "average_best")
        require_at_least(self, 0, "lr", "weight_decay", "warmup", "clip_norm")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise Problem(f"The setting betas takes two numbers from 0 to below 1, not {self.betas}.")
        if not 0 <= self.ema_decay < 1:
            raise Problem(f"The setting ema_decay must be at least 0 and below 1, not {self.ema_decay}.")


@dataclass(frozen=True)
class ValidationConfig(Config):
    """How a model that is fitted without training steps is validated."""

    validation_sentences: int = option(500, "number of validation pairs that are generated for BLEU")

    def __post_init__(self) -> None:
        require_at_least(self, 1, "validation_sentences")


@dataclass(frozen=True)
class RunConfig(ValidationConfig):
    """The section `run` of a recipe's config: the seed, the hardware, and when to log, validate and save.

    Its fields are settings; `noise2text config difformer` prints them with their help.

    >>> from noise2text import RunConfig
    >>> RunConfig(seed=1).validate_every
    5000
    """

    seed: int = option(0, "seed of the initial weights, data order, noise and dropout")
    precision: str = option("auto", "float32, bfloat16, or auto: bfloat16 on a GPU")
    acceleration: str = option(
        "auto", "training steps on a GPU: none, cuda-graphs, compiled (fused kernels, too), or auto"
    )
    sharded: bool = option(
        False, "under torchrun, shard weights and optimizer over the processes (FSDP2) instead of copying"
    )
    log_every: int = option(100, "updates between two lines of metrics.jsonl")
    validate_every: int = option(5_000, "updates between two validations")
    save_every: int = option(1_000, "updates between two checkpoints")
    best_by: str = option("bleu", "what picks the best model: bleu (of generated texts) or loss")
    loggers: str = option("", "where metrics go, too: tensorboard, wandb or trackio, separated by commas")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self, "precision", ("auto", "float32", "bfloat16"))
        require_choice(self, "acceleration", ("auto", "none", "cuda-graphs", "compiled"))
        require_choice(self, "best_by", ("bleu", "loss"))
        require_at_least(self, 1, "log_every", "validate_every", "save_every")
        require_at_least(self, 0, "seed")
