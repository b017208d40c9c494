"""DiffuSeq trained for word generation (thesis on DiffuSeq for translation, 3.2.2, algorithm 9).

    noise2text train word-by-word --train pairs.jsonl --valid pairs.jsonl --out runs/mine

NextWord layout + DiffuSeq's network, schedule and terms, at uniform times. Training draws one word of each
target; generation writes word after word, each by a walk of its own. `reach` keeps the padding from filling
most of what is learned, which is how the thesis's model came to write nothing else.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial

from noise2text.core.config import option, require_choice, require_least
from noise2text.core.errors import Problem
from noise2text.data.layouts.next_word import WORDS, NextWord
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.config import WordSettings
from noise2text.models import Diffusion
from noise2text.models.registry import Recipe, unchanged
from noise2text.recipes import diffuseq
from noise2text.recipes.diffuseq import DiffuseqSettings

__all__ = ["PRESETS", "RECIPE", "WordByWordSettings", "build"]


@dataclass(frozen=True)
class WordByWordSettings(DiffuseqSettings):
    """The thesis's section 4.2.2: DiffuSeq's hyperparameters but T."""

    words: str = option(
        "spaces", "where a word begins: at white space (spaces), or at what is no letter (signs)"
    )
    reach: int | None = option(None, "how many places are seen and written at once; none is the whole canvas")
    times: str = option("uniform", "how training times are drawn: uniform (algorithm 9) or loss-aware")
    coverage: str = option(
        "algorithm-6", "what the losses count, see diffuseq; the thesis trains both as its algorithm 6 says"
    )
    diffusion_steps: int = option(200, "T, the resolution of time in training")
    generation_steps: int = option(200, "K, the steps of each word's generation, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self, "words", WORDS)
        if self.aligned:
            raise Problem("The setting aligned is not for word-by-word: its canvas ends with the next word.")
        if self.reach is not None:
            require_least(self, 1, "reach")


_OWN = ("words", "reach", "times", "coverage", "diffusion_steps", "generation_steps")


def _like(preset: str) -> WordByWordSettings:
    """DiffuSeq's preset with this recipe's own settings."""
    theirs = dataclasses.asdict(diffuseq.PRESETS[preset])
    return WordByWordSettings(**{name: value for name, value in theirs.items() if name not in _OWN})


PRESETS: dict[str, WordByWordSettings] = {
    "covost-de-en": _like("covost-de-en"),
    "tiny": dataclasses.replace(_like("tiny"), words="signs", reach=6, generation_steps=20),
}


def build(settings: WordByWordSettings, tokenizer: Tokenizer) -> Diffusion:
    """The untrained system."""
    whole = settings.max_source + settings.max_target
    begins = tuple(WORDS[settings.words](tokenizer))
    system = diffuseq.laid_out(
        settings, tokenizer, partial(NextWord, begins=begins, reach=settings.reach or whole)
    )
    system.how = WordSettings(
        steps=settings.generation_steps, noise_beam=settings.noise_beam, clamp=settings.clamp
    )
    return system


RECIPE = Recipe(
    name="word-by-word",
    paper="a thesis on DiffuSeq for translation",
    section="3.2.2",
    line="DiffuSeq trained to write the next word; a walk for each.",
    presets=PRESETS,
    default="covost-de-en",
    resolve=unchanged,
    build=build,
    objective=diffuseq.objective,
)
