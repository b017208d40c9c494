"""The sections `optim` and `run` of a recipe's config: how weights are updated, and how a run is kept."""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.core.config import Config, option
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

    steps: int = option(300_000, "number of updates", minimum=1)
    max_tokens: int = option(
        8_192, "padded tokens of the longer side in a batch, over all processes", minimum=1
    )
    accumulate: int = option(1, "micro-batches per update; each has max_tokens tokens", minimum=1)
    lr: float = option(5e-4, "peak learning rate", minimum=0)
    betas: tuple[float, float] = option((0.9, 0.98), "Adam's β₁ and β₂", minimum=0, below=1)
    weight_decay: float = option(0.01, "AdamW's weight decay", minimum=0)
    lr_schedule: str = option(
        "inverse-sqrt", "how lr falls: inverse-sqrt, linear, cosine or constant", choices=LR_SCHEDULES
    )
    warmup: int = option(10_000, "updates over which lr rises from 0", minimum=0)
    clip_norm: float = option(1.0, "largest norm of the gradient; 0 does not clip", minimum=0)
    ema_decay: float = option(
        0.0, "decay of the moving average of the weights, e.g. 0.999; 0 for none", minimum=0, below=1
    )
    average_best: int = option(
        1, "number of best validations whose weights are averaged in the end", minimum=1
    )


@dataclass(frozen=True)
class ValidationConfig(Config):
    """How a model that is fitted without training steps is validated."""

    validation_sentences: int = option(
        500, "number of validation pairs that are generated for BLEU", minimum=1
    )


@dataclass(frozen=True)
class RunConfig(ValidationConfig):
    """The section `run` of a recipe's config: the seed, the hardware, and when to log, validate and save.

    Its fields are settings; `noise2text config difformer` prints them with their help.

    >>> from noise2text import RunConfig
    >>> RunConfig(seed=1).validate_every
    5000
    """

    seed: int = option(0, "seed of the initial weights, data order, noise and dropout", minimum=0)
    precision: str = option(
        "auto", "float32, bfloat16, or auto: bfloat16 on a GPU", choices=("auto", "float32", "bfloat16")
    )
    acceleration: str = option(
        "auto",
        "training steps on a GPU: none, cuda-graphs, compiled (fused kernels, too), or auto",
        choices=("auto", "none", "cuda-graphs", "compiled"),
    )
    sharded: bool = option(
        False, "under torchrun, shard weights and optimizer over the processes (FSDP2) instead of copying"
    )
    log_every: int = option(100, "updates between two lines of metrics.jsonl", minimum=1)
    validate_every: int = option(5_000, "updates between two validations", minimum=1)
    save_every: int = option(1_000, "updates between two checkpoints", minimum=1)
    best_by: str = option(
        "bleu", "what picks the best model: bleu (of generated texts) or loss", choices=("bleu", "loss")
    )
    loggers: str = option("", "where metrics go, too: tensorboard, wandb or trackio, separated by commas")
