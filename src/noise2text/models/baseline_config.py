"""How the baselines generate, typed by family: what has no noise has no steps of diffusion."""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.core.config import option, require_at_least
from noise2text.core.errors import Problem
from noise2text.generation.autoregressive import AutoregressiveGenerationConfig

__all__ = [
    "CopyGenerationConfig",
    "GpvaeGenerationConfig",
    "LevenshteinGenerationConfig",
    "MaskPredictGenerationConfig",
    "NearestGenerationConfig",
]


@dataclass(frozen=True)
class MaskPredictGenerationConfig:
    """Mask-predict (Ghazvininejad et al., 2019): the defaults are the paper's."""

    iterations: int = option(
        10, "T, how often the least certain tokens are predicted; 1 is parallel decoding"
    )
    length_beam: int = option(5, "ℓ, lengths tried a sentence; the likeliest text of them is taken")
    length: int | None = option(None, "write exactly so many tokens; none predicts the length")
    prefix: str = option("", "what every text begins with")
    suffix: str = option("", "what every text ends with")
    template: str = option(
        "", "what every text is like: given text, and ___ or ___{3} (tokens) for what is not"
    )

    def __post_init__(self) -> None:
        require_at_least(
            self, 1, "iterations", "length_beam", *(["length"] if self.length is not None else [])
        )
        if self.template and (self.prefix or self.suffix):
            raise Problem("A template says how a text begins and ends: give it without a prefix or suffix.")


@dataclass(frozen=True)
class LevenshteinGenerationConfig:
    """Greedy refinement (Gu et al., 2019); the iterations are those of DiffuSeq's comparison."""

    iterations: int = option(9, "how often to delete, insert and fill, at most; ends when nothing changes")
    penalty: float = option(0.0, "γ, taken from the log-probability of inserting nothing; makes texts longer")
    prefix: str = option("", "what every text begins with")
    suffix: str = option("", "what every text ends with")

    def __post_init__(self) -> None:
        require_at_least(self, 1, "iterations")
        require_at_least(self, 0, "penalty")


@dataclass(frozen=True)
class CopyGenerationConfig:
    """Nothing can be chosen: the source is the answer."""


@dataclass(frozen=True)
class NearestGenerationConfig:
    """How many neighbours answer."""

    neighbours: int = option(1, "candidates a sentence: the targets of so many nearest sources")

    def __post_init__(self) -> None:
        require_at_least(self, 1, "neighbours")


@dataclass(frozen=True)
class GpvaeGenerationConfig(AutoregressiveGenerationConfig):
    """The searches of what writes from left to right, each from a random context (Du et al., 2022)."""

    latent_noise_scale: float = option(
        2.0, "s, what the context's noise is multiplied by; 0 is none (DiffuSeq: 1 to 4)"
    )
    noises: int = option(1, "contexts drawn a sentence; each gives the texts of one search")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 0, "latent_noise_scale")
        require_at_least(self, 1, "noises")
