"""How diffusion systems generate, typed by family: what predicts no length has no length beam."""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.problem import Problem
from noise2text.settings import option

__all__ = ["DiffusionSettings", "LengthSettings"]


@dataclass(frozen=True)
class DiffusionSettings:
    """The walk, the candidates and their selection."""

    steps: int = option(2000, "evenly spaced times from noise to text")
    stop_early: int = option(0, "how many of the last steps are left out")
    noise_beam: int = option(1, "noises tried a sentence, or a length")
    eta: float = option(1.0, "share of fresh noise a step: 1 is ancestral, 0 is DDIM")
    clamp: bool = option(False, "move every estimate to the nearest embedding")
    select: str = option(
        "mbr", "which candidate: mbr, or score (its tokens' mean log-probability, its length's)"
    )
    utility: str = option("bleu", "what MBR compares with: bleu, bleu-nltk4, chrf or unigram")
    candidate_is: str = option(
        "hypothesis", "MBR's direction: the candidate is the hypothesis or the reference"
    )
    self_pair: bool = option(True, "whether MBR compares a candidate with itself too, as its equation does")

    def __post_init__(self) -> None:
        for name in ("steps", "noise_beam"):
            if getattr(self, name) < 1:
                raise Problem(f"The setting {name} must be at least 1, not {getattr(self, name)}.")
        if not 0 <= self.stop_early < self.steps:
            raise Problem(f"The setting stop_early must be between 0 and steps - 1, not {self.stop_early}.")
        if not 0 <= self.eta <= 1:
            raise Problem(f"The setting eta must be between 0 and 1, not {self.eta}.")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise Problem(
                    f"The setting {name} is one of {', '.join(allowed)}, not {getattr(self, name)!r}."
                )


_CHOICES = {
    "select": ("mbr", "score"),
    "utility": ("bleu", "bleu-nltk4", "chrf", "unigram"),
    "candidate_is": ("hypothesis", "reference"),
}


@dataclass(frozen=True)
class LengthSettings(DiffusionSettings):
    """The same with predicted lengths; the defaults are Difformer's."""

    steps: int = option(20, "evenly spaced times from noise to text")
    stop_early: int = option(5, "how many of the last steps are left out")
    noise_beam: int = option(2, "noises tried a length")
    length_beam: int = option(5, "lengths tried a sentence")
    lengths: str = option("top", "which lengths: the likeliest (top), or the likeliest's neighbours (around)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length_beam < 1:
            raise Problem(f"The setting length_beam must be at least 1, not {self.length_beam}.")
        if self.lengths not in ("top", "around"):
            raise Problem(f"The setting lengths is top or around, not {self.lengths!r}.")
