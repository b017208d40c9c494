"""What every recipe's training has in common: its data, and for what learns by steps the optimiser."""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.core.config import option, require_at_least, require_choice
from noise2text.core.errors import Problem
from noise2text.training.lr_schedules import LR_SCHEDULES

__all__ = ["DataConfig", "TrainingConfig"]


@dataclass(frozen=True)
class DataConfig:
    """How texts become tokens; all that a recipe needs which takes its corpus in at once."""

    tokenizer: str = option("bpe", "bpe (learned), characters (learned) or wordpiece (from vocabulary_file)")
    vocabulary: int = option(10_000, "how many tokens a learned BPE has")
    vocabulary_file: str = option("", "the vocab.txt of WordPiece")
    normalise: bool = option(
        False, "spell out umlauts and ß, strip accents, drop brackets (the thesis, 4.1.1)"
    )
    lowercase: bool = option(False, "lowercase all text")
    max_source: int = option(128, "longest source in tokens; what is longer is cut and counted")
    max_target: int = option(128, "longest target in tokens; what is longer is cut and counted")
    validation_sentences: int = option(500, "how many pairs of the validation set are generated for its BLEU")

    def __post_init__(self) -> None:
        require_choice(self, "tokenizer", self.tokenizers)
        require_at_least(self, 1, "vocabulary", "max_source", "max_target", "validation_sentences")
        if self.tokenizer == "wordpiece" and not self.vocabulary_file:
            raise Problem(
                "The tokenizer wordpiece needs the setting vocabulary_file, the path of a vocab.txt."
            )

    @property
    def tokenizers(self) -> tuple[str, ...]:
        """The tokenizers that this recipe knows."""
        return ("bpe", "characters", "wordpiece")


@dataclass(frozen=True)
class TrainingConfig(DataConfig):
    """Data, optimiser and bookkeeping; a recipe adds its architecture and its diffusion."""

    steps: int = option(300_000, "how many updates to train")
    max_tokens: int = option(8_192, "padded tokens of the longer side in a batch, over all processes")
    accumulate: int = option(1, "micro-batches an update; each has `tokens` tokens")
    optimizer: str = option("adamw", "adamw")
    lr: float = option(5e-4, "the peak of the learning rate")
    betas: tuple[float, float] = option((0.9, 0.98), "Adam's β")
    weight_decay: float = option(0.01, "AdamW's decay of the weights")
    lr_schedule: str = option(
        "inverse-sqrt", "how the learning rate falls: inverse-sqrt, linear, cosine or constant"
    )
    warmup: int = option(10_000, "steps over which the learning rate rises")
    clip_norm: float = option(1.0, "largest norm of the gradient; 0 leaves it alone")
    ema_decay: float = option(0.0, "decay of the moving average of the weights, e.g. 0.999; 0 for none")
    average_best: int = option(1, "average the weights of so many best validations into the final model")
    precision: str = option("auto", "float32, bfloat16, or auto: bfloat16 on a GPU")
    acceleration: str = option(
        "auto", "of a GPU's steps: none, recorded (CUDA graphs), compiled (fused kernels, too), or auto"
    )
    sharded: bool = option(
        False,
        "under torchrun, split weights and optimiser over the processes (FSDP2) instead of copying",
    )
    seed: int = option(0, "decides initial weights, data order, noise and dropout")

    log_every: int = option(100, "steps between two lines of metrics.jsonl")
    validate_every: int = option(5_000, "steps between two validations")
    save_every: int = option(1_000, "steps between two checkpoints")
    best_by: str = option("bleu", "what the best model is best in: bleu (generated) or loss")
    tensorboard: bool = option(False, "write TensorBoard files too")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, allowed in _CHOICES.items():
            require_choice(self, name, allowed)
        require_at_least(self, 1, *_AT_LEAST_ONE)
        require_at_least(self, 0, "lr", "weight_decay", "warmup", "clip_norm", "seed")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise Problem(f"The setting betas takes two numbers from 0 to below 1, not {self.betas}.")
        if not 0 <= self.ema_decay < 1:
            raise Problem(f"The setting ema_decay must be at least 0 and below 1, not {self.ema_decay}.")


_CHOICES = {
    "optimizer": ("adamw",),
    "lr_schedule": tuple(LR_SCHEDULES),
    "precision": ("auto", "float32", "bfloat16"),
    "acceleration": ("auto", "none", "recorded", "compiled"),
    "best_by": ("bleu", "loss"),
}
_AT_LEAST_ONE = (
    "steps",
    "max_tokens",
    "accumulate",
    "average_best",
    "log_every",
    "validate_every",
    "save_every",
)
