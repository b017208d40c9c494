"""DiffuSeq trained for word generation (Demirag, 2023, 3.2.2, algorithm 9).

    noise2text train word-by-word --train pairs.jsonl --valid pairs.jsonl --out runs/mine

Next-word layout + DiffuSeq's network, schedule and terms, at uniform times. Training draws one word of each
target; generation adds one word per round of sampling. `max_word_tokens` limits the padding after a word: for
Demirag most of the canvas was padding, and the model learned to generate nothing else.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial

from noise2text.core.config import option, section
from noise2text.core.errors import Problem
from noise2text.data.layouts.next_word import WORD_START_RULES, NextWordLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.diffuseq_config import DiffuSeqDiffusionConfig
from noise2text.generation.config import WordByWordGenerationConfig
from noise2text.models import DiffusionModel
from noise2text.models.registry import Recipe
from noise2text.recipes import diffuseq
from noise2text.recipes.diffuseq import DiffuSeqConfig

__all__ = ["PRESETS", "RECIPE", "WordByWordConfig", "WordByWordDiffusionConfig", "build"]


@dataclass(frozen=True)
class WordByWordDiffusionConfig(DiffuSeqDiffusionConfig):
    """DiffuSeq's settings, and what a word is."""

    word_boundary: str = option(
        "spaces",
        "where a word begins: at white space (spaces), or at any character but letters (signs)",
        choices=WORD_START_RULES,
    )
    max_word_tokens: int | None = option(
        None, "positions for the next word; none is the rest of the canvas", minimum=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.align_targets:
            raise Problem(
                "The setting align_targets is not for word-by-word: its canvas ends with the next word."
            )


@dataclass(frozen=True)
class WordByWordConfig(DiffuSeqConfig):
    """Section 4.2.2 of Demirag (2023): DiffuSeq's hyperparameters except T."""

    diffusion: WordByWordDiffusionConfig = section(WordByWordDiffusionConfig(), "noise and loss")
    generation: WordByWordGenerationConfig = section(WordByWordGenerationConfig(), "how it generates")


def _derive_preset(preset: str) -> WordByWordConfig:
    """DiffuSeq's preset with the settings of algorithms 6 and 9."""
    settings = asdict(diffuseq.PRESETS[preset])
    del settings["generation"]["strategy"]
    return (
        WordByWordConfig()
        .replace(settings)
        .replace(
            {"generation.steps": 200},
            time_sampler="uniform",
            loss_positions="algorithm-6",
            num_timesteps=200,
        )
    )


_TINY = _derive_preset("tiny").replace({"generation.steps": 20}, word_boundary="signs", max_word_tokens=6)

PRESETS: dict[str, WordByWordConfig] = {
    "covost-de-en": _derive_preset("covost-de-en"),
    "tiny": _TINY.replace(noise_factor=2.0, anchor_weight=1.0, clamp=False),
    "tiny-published": _TINY,
    "small": _derive_preset("small").replace(
        {"optim.steps": 3_000, "generation.steps": 1},
        max_word_tokens=6,
        max_tokens=14_400,
        sampling_noise_factor=4.0,
        noise_beam=1,
        validate_every=1_500,
        save_every=1_500,
    ),
}


def build(config: WordByWordConfig, tokenizer: Tokenizer) -> DiffusionModel:
    """The untrained model."""
    diffuseq.require_joint_network(config)
    diffusion, data = config.diffusion, config.data
    layout = partial(
        NextWordLayout,
        word_start_tokens=tuple(WORD_START_RULES[diffusion.word_boundary](tokenizer)),
        max_word_tokens=diffusion.max_word_tokens or data.max_source + data.max_target,
    )
    schedule = diffuseq.build_schedule(config)
    return diffuseq.build_model(
        config,
        tokenizer,
        layout,
        schedule,
        parameterization=diffusion.build_parameterization(schedule),
        source_dropout=diffusion.source_dropout,
    )


RECIPE = Recipe(
    name="word-by-word",
    paper=diffuseq.DEMIRAG_2023,
    paper_section="3.2.2",
    summary="DiffuSeq trained to generate the next word, with one round of sampling per word.",
    presets=PRESETS,
    default_preset="covost-de-en",
    build=build,
    objective=diffuseq.objective,
)
