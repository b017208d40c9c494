"""How diffusion systems generate, typed by family: what predicts no length has no length beam."""

from __future__ import annotations

from dataclasses import dataclass, replace

from noise2text.core.config import option, require_at_least, require_choice, require_fraction
from noise2text.core.errors import Problem
from noise2text.diffusion.solvers import Ddim, PriorSampling, Solver

__all__ = [
    "ClassifierFreeGenerationConfig",
    "DiffusionGenerationConfig",
    "LengthPredictingGenerationConfig",
    "PriorSamplingGenerationConfig",
    "WordByWordGenerationConfig",
]


@dataclass(frozen=True)
class DiffusionGenerationConfig:
    """The walk, the candidates and their selection."""

    steps: int = option(2000, "evenly spaced times from noise to text")
    stop_early: int = option(0, "how many of the last steps are left out")
    noise_beam: int = option(1, "noises tried a sentence, or a length")
    eta: float = option(1.0, "share of fresh noise a step: 1 is ancestral, 0 is DDIM")
    solver: str = option(
        "single", "how a step is made: single (by eta), or multistep (second order, no fresh noise)"
    )
    sampling_noise_factor: float = option(1.0, "multiply the noise on the way down, too (Difformer, C.7)")
    clamp: bool = option(False, "move every estimate to the nearest embedding")
    select: str = option(
        "mbr", "which candidate: mbr, or score (its tokens' mean log-probability, its length's)"
    )
    utility: str = option("bleu", "what MBR compares with: bleu, bleu-nltk4, chrf or unigram")
    candidate_is: str = option(
        "hypothesis", "MBR's direction: the candidate is the hypothesis or the reference"
    )
    prefix: str = option("", "what every text begins with")
    suffix: str = option("", "what every text ends with, where the length is known beforehand")
    template: str = option(
        "", "what every text is like: given text, and ___ or ___{3} (tokens) for what is not"
    )
    strategy: str = option("parallel", "what is written at once: all (parallel), or token-by-token")
    self_pair: bool = option(True, "whether MBR compares a candidate with itself too, as its equation does")
    guide: str = option("", "the folder of a classifier that every text is steered by; none if empty")
    guide_class: str = option("", "the class that it steers to")
    guide_steps: int = option(3, "steps of Adagrad up the classifier's slope, after each step of the walk")
    guide_rate: float = option(0.1, "their size")
    fluency: float = option(0.01, "λ, how much a steered text keeps to what the model meant")

    def __post_init__(self) -> None:
        require_at_least(self, 1, "steps", "noise_beam")
        if not 0 <= self.stop_early < self.steps:
            raise Problem(
                f"The setting stop_early must be at least 0 and below steps, not {self.stop_early} of "
                f"{self.steps}: change one of them."
            )
        require_fraction(self, "eta")
        if not self.sampling_noise_factor > 0:
            raise Problem(f"The setting factor must be above 0, not {self.sampling_noise_factor}.")
        require_at_least(self, 0, "guide_steps", "guide_rate", "fluency")
        if bool(self.guide) != bool(self.guide_class):
            raise Problem("A guide and a class need each other: give both --guide and --class, or neither.")
        if self.guide and self.fluency and (not self.eta or self.solver != "single"):
            raise Problem(
                "A guide needs fresh noise to weigh its fluency: set eta above 0 and solver to single, or "
                "fluency to 0."
            )
        for name, allowed in (
            _CHOICES | {"strategy": self.strategy_choices, "select": self.select_choices}
        ).items():
            require_choice(self, name, allowed)
        if self.template and (self.prefix or self.suffix):
            raise Problem("A template says how a text begins and ends: give it without a prefix or suffix.")

    @property
    def strategy_choices(self) -> tuple[str, ...]:
        """The strategies that this family knows."""
        return ("parallel", "token-by-token")

    @property
    def select_choices(self) -> tuple[str, ...]:
        """The ways to select that this family knows."""
        return ("mbr", "score")

    def build_solver(self, seed: int) -> Solver:
        """The solver that makes the steps."""
        return Solver(Ddim(self.eta)) if self.solver == "single" else Solver(Ddim(0.0), order=2)


_CHOICES = {
    "solver": ("single", "multistep"),
    "utility": ("bleu", "bleu-nltk4", "chrf", "unigram"),
    "candidate_is": ("hypothesis", "reference"),
}


@dataclass(frozen=True)
class LengthPredictingGenerationConfig(DiffusionGenerationConfig):
    """The same with predicted lengths; the defaults are Difformer's."""

    steps: int = option(20, "evenly spaced times from noise to text")
    stop_early: int = option(5, "how many of the last steps are left out")
    noise_beam: int = option(2, "noises tried a length")
    length_beam: int = option(5, "lengths tried a sentence")
    lengths: str = option("top", "which lengths: the likeliest (top), or the likeliest's neighbours (around)")
    length: int | None = option(None, "write exactly so many tokens; none predicts the length")
    select: str = option(
        "mbr",
        "which candidate: mbr, weighted-mbr (mbr that counts each by the model's own likelihood of it), or score "
        "(its tokens' mean log-probability, its length's)",
    )

    @property
    def select_choices(self) -> tuple[str, ...]:
        return ("mbr", "weighted-mbr", "score")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "length_beam", *(["length"] if self.length is not None else []))
        require_choice(self, "lengths", ("top", "around"))


@dataclass(frozen=True)
class ClassifierFreeGenerationConfig(DiffusionGenerationConfig):
    """The same for models that also learned to write without a source."""

    guidance_weight: float = option(0.0, "w of (1 + w)·with the source − w·without it; 0 is the plain model")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, -1, "guidance_weight")


@dataclass(frozen=True)
class WordByWordGenerationConfig(DiffusionGenerationConfig):
    """The same for what was trained to write the next word."""

    strategy: str = option("word-by-word", "what is written at once: the next word (word-by-word)")

    @property
    def strategy_choices(self) -> tuple[str, ...]:
        return ("word-by-word",)


@dataclass(frozen=True)
class PriorSamplingGenerationConfig(DiffusionGenerationConfig):
    """The same with sampling by the prior (SeqDiffuSeq, appendix E): z_s ~ q(z_s | ẑ₀) at some steps."""

    prior_rate: float = option(0.0, "p₁, the probability that a step draws from the prior; 0 is never")
    prior_share: float = option(0.5, "p₂, the share of the steps, from the first, that may do so")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fraction(self, "prior_rate", "prior_share")

    def build_solver(self, seed: int) -> Solver:
        usual = super().build_solver(seed)
        last_step = self.prior_share * self.steps
        return replace(
            usual, stochasticity=PriorSampling(usual.stochasticity, self.prior_rate, last_step, seed)
        )
