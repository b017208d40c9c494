"""DiffuSeq trained for word generation (thesis on DiffuSeq for translation, 3.2.2, algorithm 9).

    noise2text train word-by-word --train pairs.jsonl --valid pairs.jsonl --out runs/mine

NextWord layout + DiffuSeq's network, schedule and terms, at uniform times. Training draws one word of each
target; generation writes word after word, each by a walk of its own. `max_word_tokens` keeps the padding from filling
most of what is learned, which is how the thesis's model came to write nothing else.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial

from noise2text.core.config import option, require_at_least, require_choice
from noise2text.core.errors import Problem
from noise2text.data.layouts.next_word import WORD_START_RULES, NextWordLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.config import WordByWordGenerationConfig
from noise2text.models import DiffusionModel
from noise2text.models.registry import Recipe, keep_config
from noise2text.recipes import diffuseq
from noise2text.recipes.diffuseq import DiffuSeqConfig

__all__ = ["PRESETS", "RECIPE", "WordByWordConfig", "build"]


@dataclass(frozen=True)
class WordByWordConfig(DiffuSeqConfig):
    """The thesis's section 4.2.2: DiffuSeq's hyperparameters but T."""

    word_boundary: str = option(
        "spaces", "where a word begins: at white space (spaces), or at what is no letter (signs)"
    )
    max_word_tokens: int | None = option(
        None, "how many places are seen and written at once; none is the whole canvas"
    )
    time_sampler: str = option("uniform", "how training times are drawn: uniform (algorithm 9) or loss-aware")
    loss_positions: str = option(
        "algorithm-6", "what the losses count, see diffuseq; the thesis trains both as its algorithm 6 says"
    )
    diffusion_steps: int = option(200, "T, the resolution of time in training")
    generation_steps: int = option(200, "K, the steps of each word's generation, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self, "word_boundary", WORD_START_RULES)
        if self.align_targets:
            raise Problem(
                "The setting align_targets is not for word-by-word: its canvas ends with the next word."
            )
        if self.max_word_tokens is not None:
            require_at_least(self, 1, "max_word_tokens")


_OVERRIDDEN = (
    "word_boundary",
    "max_word_tokens",
    "time_sampler",
    "loss_positions",
    "diffusion_steps",
    "generation_steps",
)


def _derive_preset(preset: str) -> WordByWordConfig:
    """DiffuSeq's preset with this recipe's own settings."""
    theirs = dataclasses.asdict(diffuseq.PRESETS[preset])
    return WordByWordConfig(**{name: value for name, value in theirs.items() if name not in _OVERRIDDEN})


PRESETS: dict[str, WordByWordConfig] = {
    "covost-de-en": _derive_preset("covost-de-en"),
    "tiny": dataclasses.replace(
        _derive_preset("tiny"), word_boundary="signs", max_word_tokens=6, generation_steps=20
    ),
}


def build(config: WordByWordConfig, tokenizer: Tokenizer) -> DiffusionModel:
    """The untrained system."""
    whole = config.max_source + config.max_target
    word_start_tokens = tuple(WORD_START_RULES[config.word_boundary](tokenizer))
    model = diffuseq.build_with_layout(
        config,
        tokenizer,
        partial(
            NextWordLayout,
            word_start_tokens=word_start_tokens,
            max_word_tokens=config.max_word_tokens or whole,
        ),
    )
    model.generation_config = WordByWordGenerationConfig(
        steps=config.generation_steps, noise_beam=config.noise_beam, clamp=config.clamp
    )
    return model


RECIPE = Recipe(
    name="word-by-word",
    paper="a thesis on DiffuSeq for translation",
    section="3.2.2",
    summary="DiffuSeq trained to write the next word; a walk for each.",
    presets=PRESETS,
    default_preset="covost-de-en",
    resolve=keep_config,
    build=build,
    objective=diffuseq.objective,
)
