"""The section `generation` of a recipe's config: how its model generates.

There is one class per family of models, composed of the groups of settings (`config_groups.py`) that the
family understands: a model that predicts no lengths has no `length_beam`. The baselines' own are in
`models/baseline_config.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

from noise2text.core.config import option
from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.diffusion.boundary_conditional import BoundarySampler
from noise2text.diffusion.sampler import Sample
from noise2text.diffusion.solvers import PriorSampling, Solver
from noise2text.generation.beam_search import BeamSearch, DiverseBeamSearch
from noise2text.generation.config_groups import (
    GuidanceConfig,
    LengthConfig,
    PrefixConfig,
    SamplingConfig,
    SelectionConfig,
    TemplateConfig,
)
from noise2text.generation.token_sampling import GreedySearch, Sampling
from noise2text.generation.token_search import Search, SearchLimits
from noise2text.nn.length_predictor import LENGTH_PROPOSALS
from noise2text.preprocessing.preprocessor import PreprocessingConfig

__all__ = [
    "AutoregressiveGenerationConfig",
    "DiffusionGenerationConfig",
    "LengthPredictingGenerationConfig",
    "PriorSamplingGenerationConfig",
    "WordByWordGenerationConfig",
]


@dataclass(frozen=True)
class DiffusionGenerationConfig(
    GuidanceConfig, TemplateConfig, SelectionConfig, SamplingConfig, PreprocessingConfig
):
    """The section `generation` of diffusion recipes: sampling steps, candidates and the selection among them.

    Its fields are settings; `noise2text config diffuseq` prints them with their help. `Model.generate` and
    `noise2text generate` take each of them by name.

    >>> from noise2text import DiffusionGenerationConfig
    >>> config = DiffusionGenerationConfig(steps=20, noise_beam=5, eta=0.0)
    >>> config.build_solver(seed=0)
    Solver(stochasticity=Ddim(eta=0.0), order=1)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.guide and self.fluency and (not self.eta or self.solver != "ddim"):
            raise Problem(
                "Classifier guidance with fluency needs new noise in each step: set eta above 0 and solver "
                "to ddim, or fluency to 0."
            )

    @property
    def num_lengths(self) -> int:
        """The number of lengths that are tried per sentence."""
        return 1

    def with_candidates(self, texts: int, *, per_text: int) -> Self:
        """The config with more noises, if it has too few candidates for so many different texts."""
        noises = math.ceil(texts * per_text / self.num_lengths)
        return replace(self, noise_beam=max(self.noise_beam, noises))

    def network_settings(self) -> tuple[Any, ...]:
        """The values of the settings that must be equal for texts to go through the network together.

        The other settings decide how a text is preprocessed, how many candidates it has, what is given of it,
        by which steps it is sampled, where a classifier guides it, and which candidate is selected.
        """
        if self.strategy != "parallel":
            return (self,)  # the texts decide how often the network is called
        own = _SETTINGS_OF_A_TEXT if self.build_sampler() else _SETTINGS_OF_A_TEXT | _SETTINGS_OF_STEPS
        shared = [each.name for each in fields(self) if each.name not in own]
        return (type(self), bool(self.guide), *(getattr(self, name) for name in shared))

    def build_sampler(self) -> Sample | None:
        """The sampler, if it is not `sample` with this config's solver."""
        return None


_GROUPS_OF_A_TEXT = (SelectionConfig, TemplateConfig, LengthConfig, PreprocessingConfig)
_SETTINGS_OF_A_TEXT = {
    *(each.name for group in _GROUPS_OF_A_TEXT for each in fields(group)),
    *("noise_beam", "length_beam", "lengths"),
}
_SETTINGS_OF_STEPS = {
    *("steps", "stop_early", "stop_when_sure", "eta", "solver", "sampling_noise_factor"),
    *("prior_rate", "prior_share"),
    *("guide", "guide_class", "guide_steps", "guide_rate", "fluency"),
}

LENGTHS_FOR_TEXTS = 5
"""For several texts a model tries up to so many lengths, or more if its config does."""


@dataclass(frozen=True)
class LengthPredictingGenerationConfig(LengthConfig, DiffusionGenerationConfig):
    """The section `generation` of diffusion recipes that predict lengths; the defaults are Difformer's.

    It has the settings of `DiffusionGenerationConfig` and those of the length beam; `noise2text config
    difformer` prints them with their help.

    >>> from noise2text import LengthPredictingGenerationConfig
    >>> config = LengthPredictingGenerationConfig(length_beam=7, noise_beam=3, select="score")
    >>> config.length_beam * config.noise_beam  # candidates per sentence
    21
    """

    steps: int = 20
    stop_early: int = 5
    noise_beam: int = option(2, "noise samples per length")
    length_beam: int = option(5, "lengths tried per sentence", minimum=1)
    lengths: str = option(
        "top",
        "which lengths: top (the likeliest) or around (next to the likeliest)",
        choices=LENGTH_PROPOSALS,
    )
    sampling_boundary_confidence: float = option(
        0.0,
        "r of the deterministic sampler along boundaries, which ignores eta and solver; 0 does not use it",
        minimum=0,
        maximum=1,
    )
    select: str = option(
        "mbr",
        "how to select: mbr, mbr-by-length (within each length, then among the winners), weighted-mbr "
        "(weights candidates by the model's likelihood), or score (mean log-probability of the tokens, and "
        "of the length)",
        choices=("mbr", "mbr-by-length", "weighted-mbr", "score"),
    )

    @property
    def num_lengths(self) -> int:
        return self.length_beam if self.length is None else 1

    def with_candidates(self, texts: int, *, per_text: int) -> Self:
        """The config with a length for each text, up to five, and then with more noises per length.

        Texts of different lengths differ more than those of different noises, but unlikely lengths harm. A
        model that tries one length only is sure of it and keeps it.
        """
        lengths = max(self.length_beam, min(texts, LENGTHS_FOR_TEXTS)) if self.length_beam > 1 else 1
        wider = replace(self, length_beam=lengths)
        return super(LengthPredictingGenerationConfig, wider).with_candidates(texts, per_text=per_text)

    def build_sampler(self) -> Sample | None:
        return (
            BoundarySampler(self.sampling_boundary_confidence) if self.sampling_boundary_confidence else None
        )


@dataclass(frozen=True)
class WordByWordGenerationConfig(DiffusionGenerationConfig):
    """Diffusion for models that were trained to predict the next word."""

    strategy: str = option(
        "word-by-word",
        "word-by-word, the only one: diffuse one word after the other",
        choices=("word-by-word",),
    )


@dataclass(frozen=True)
class PriorSamplingGenerationConfig(DiffusionGenerationConfig):
    """Diffusion that samples some steps from the prior z_s ~ q(z_s | ẑ₀) (SeqDiffuSeq, appendix E)."""

    prior_rate: float = option(
        0.0, "p₁, probability that a step samples from the prior; 0 is never", minimum=0, maximum=1
    )
    prior_share: float = option(0.5, "p₂, share of the first steps that may do so", minimum=0, maximum=1)

    def build_solver(self, seed: int) -> Solver:
        usual = super().build_solver(seed)
        if not self.prior_rate:
            return usual
        step_limit = self.prior_share * self.steps
        return replace(
            usual, stochasticity=PriorSampling(usual.stochasticity, self.prior_rate, step_limit, seed)
        )


@dataclass(frozen=True)
class AutoregressiveGenerationConfig(LengthConfig, PrefixConfig, SelectionConfig, PreprocessingConfig):
    """The section `generation` of autoregressive recipes: beam search or sampling, and the selection.

    Its fields are settings, with those of Difformer's table 3 (b = 5) as defaults; `noise2text config
    transformer` prints them with their help.

    >>> from noise2text import AutoregressiveGenerationConfig
    >>> AutoregressiveGenerationConfig(samples=10, top_p=0.9).select
    'score'
    """

    beam: int = option(5, "hypotheses of the beam search; 1 is greedy", minimum=1)
    length_penalty: float = option(1.0, "power of the length by which a score's log-probability is divided")
    diverse_groups: int = option(1, "groups of diverse beam search; they share the beam", minimum=1)
    diversity: float = option(
        0.5, "penalty of a token for each earlier group that has just chosen it", minimum=0
    )
    samples: int = option(0, "texts sampled per sentence; 0 uses beam search", minimum=0)
    temperature: float = option(1.0, "of sampling: below 1 sharper, above 1 flatter", above=0)
    top_k: int = option(0, "of sampling: from the k likeliest tokens; 0 is from all", minimum=0)
    top_p: float = option(
        1.0, "of sampling: from the fewest tokens that reach this probability", above=0, maximum=1
    )
    select: str = option("score", "how to select: score (see length_penalty) or mbr")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beam % self.diverse_groups:
            raise Problem(
                f"The setting beam must be a multiple of diverse_groups, not {self.beam} of "
                f"{self.diverse_groups}."
            )
        if not self.samples and (self.temperature, self.top_k, self.top_p) != (1, 0, 1):
            raise Problem("The settings temperature, top_k and top_p are for sampling: set samples, too.")

    def with_candidates(self, texts: int, *, per_text: int) -> Self:
        """The config with more samples or a larger beam, if it has too few for so many different texts."""
        count = texts * per_text
        if self.samples:
            return replace(self, samples=max(self.samples, count))
        beam = math.ceil(count / self.diverse_groups) * self.diverse_groups
        return replace(self, beam=max(self.beam, beam))

    def build_search(self, limits: SearchLimits, *, seeds: Tensor, indices: Tensor) -> Search:
        """The search for the sentences with these seeds (B,) and these indices (B,) in the input."""
        if self.samples:
            numbers = torch.arange(self.samples, device=indices.device)
            keys = make_key(seeds[:, None], indices[:, None], numbers)
            return Sampling(
                keys,
                limits=limits,
                temperature=self.temperature,
                top_k=self.top_k,
                top_p=self.top_p,
                length_penalty=self.length_penalty,
            )
        score: dict[str, Any] = {
            "limits": limits,
            "length_penalty": self.length_penalty,
            "device": indices.device,
        }
        if self.beam == 1:
            return GreedySearch(len(indices), **score)
        size = self.beam // self.diverse_groups
        beams = [BeamSearch(len(indices), size, **score) for _ in range(self.diverse_groups)]
        return beams[0] if len(beams) == 1 else DiverseBeamSearch(beams, diversity=self.diversity)
