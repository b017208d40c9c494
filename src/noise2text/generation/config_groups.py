"""Groups of settings, of which the sections `generation` are composed.

A family of models inherits the groups that it understands and adds its own settings:

    @dataclass(frozen=True)
    class MyGenerationConfig(SelectionConfig, PrefixConfig):
        beam: int = option(5, "hypotheses of the beam search")

An `option` says which values it takes. Where settings must fit together, a group refuses others in
`__post_init__`, and then calls that of the next group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from noise2text.core.config import (
    Config,
    option,
)
from noise2text.core.errors import Problem
from noise2text.data.layouts.template import Template
from noise2text.diffusion.solvers import Ddim, Solver
from noise2text.metrics.mbr_utilities import DIRECTIONS, UTILITIES

__all__ = [
    "GuidanceConfig",
    "LengthConfig",
    "PrefixConfig",
    "PrefixSuffixConfig",
    "SamplingConfig",
    "SelectionConfig",
    "TemplateConfig",
]


@dataclass(frozen=True)
class SamplingConfig(Config):
    """How a diffusion model goes from noise to text."""

    steps: int = option(2000, "evenly spaced times from noise to text", minimum=1)
    stop_early: int = option(0, "steps skipped at the end of sampling; 0 if steps is set alone")
    stop_when_sure: float = option(
        1.0,
        "stop when all tokens stay the same and have at least this probability; 1 is never",
        minimum=0,
        maximum=1,
    )
    noise_beam: int = option(1, "noise samples per sentence, or per length", minimum=1)
    eta: float = option(
        1.0, "DDIM's η: 0 is deterministic, 1 is ancestral sampling (DDPM)", minimum=0, maximum=1
    )
    solver: str = option(
        "ddim",
        "ddim (first order, uses eta) or multistep (second order, no new noise)",
        choices=("ddim", "multistep"),
    )
    sampling_noise_factor: float = option(1.0, "factor of the noise while sampling (Difformer, C.7)", above=0)
    clamp: bool = option(False, "move every estimate to the nearest embedding")
    strategy: str = option(
        "parallel", "parallel (all tokens at once) or token-by-token", choices=("parallel", "token-by-token")
    )

    def __post_init__(self) -> None:
        if not 0 <= self.stop_early < self.steps:
            raise Problem(
                f"The setting stop_early must be at least 0 and below steps, not {self.stop_early} of "
                f"{self.steps}: change one of them."
            )
        super().__post_init__()

    def implied_changes(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """N steps run all N, unless the change also says how many are left out."""
        return {"stop_early": 0} if "steps" in changes and "stop_early" not in changes else {}

    def build_solver(self, seed: int) -> Solver:
        """The solver of the sampling steps."""
        return Solver(Ddim(self.eta)) if self.solver == "ddim" else Solver(Ddim(0.0), order=2)


@dataclass(frozen=True)
class SelectionConfig(Config):
    """Which of a sentence's candidates is its text."""

    select: str = option(
        "mbr", "how to select: mbr, or score (mean log-probability of the tokens)", choices=("mbr", "score")
    )
    utility: str = option("bleu", f"what MBR compares by: {', '.join(UTILITIES)}", choices=UTILITIES)
    candidate_is: str = option(
        "hypothesis", "role of the candidate in each comparison: hypothesis or reference", choices=DIRECTIONS
    )
    self_pair: bool = option(True, "also compare each candidate with itself")


@dataclass(frozen=True)
class PrefixConfig(Config):
    """How every output begins."""

    prefix: str = option("", "text that every output begins with")


@dataclass(frozen=True)
class PrefixSuffixConfig(PrefixConfig):
    """How every output begins and ends."""

    suffix: str = option("", "text that every output ends with, where the length is known beforehand")


@dataclass(frozen=True)
class TemplateConfig(PrefixSuffixConfig):
    """What is given of every output: how it begins and ends, or all but the gaps."""

    template: str = option("", "fixed text with ___ or ___{3} (tokens) where the model fills in")

    def __post_init__(self) -> None:
        if self.template and (self.prefix or self.suffix):
            raise Problem("A template fixes how a text begins and ends: set it without prefix and suffix.")
        super().__post_init__()


@dataclass(frozen=True)
class LengthConfig(Config):
    """How long every output is."""

    length: int | None = option(
        None, "exact number of tokens of every output; none lets the model decide", minimum=1
    )

    def find_length(self, template: Template | None = None, *, max_length: int) -> int | None:
        """The length that is set, or the only one that the template has; None if the model decides."""
        length = self.length
        if length is None and template is not None and template.is_exact:
            length = template.min_length
        if length is not None and length > max_length:
            raise Problem(f"The length must be at most {max_length} for this model, not {length}.")
        return length


@dataclass(frozen=True)
class GuidanceConfig(Config):
    """Classifier guidance and classifier-free guidance."""

    guide: str = option("", "folder of the classifier for classifier guidance; empty for none")
    guide_class: str = option("", "class that the classifier guides to")
    guide_steps: int = option(
        3, "Adagrad steps on the classifier's gradient after each sampling step", minimum=0
    )
    guide_rate: float = option(0.1, "learning rate of these steps", minimum=0)
    fluency: float = option(0.01, "λ, weight of staying close to the unguided sample", minimum=0)
    guidance_weight: float = option(
        0.0, "w of classifier-free guidance, (1 + w)·with the source − w·without it; 0 is none", minimum=-1
    )

    def __post_init__(self) -> None:
        if bool(self.guide) != bool(self.guide_class):
            raise Problem(
                "The settings guide and guide_class (--guide and --class) need each other: set both or none."
            )
        super().__post_init__()
