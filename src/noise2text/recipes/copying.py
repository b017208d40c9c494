"""Copy the source: the score that every system of paraphrase or simplification has to beat.

    noise2text train copy --train pairs.jsonl --valid pairs.jsonl --out runs/copy

There is nothing to learn. Training notes how the copies score on the validation set and saves an empty model.
The tokens are bytes, so that every text is copied as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from noise2text.core.config import option
from noise2text.data.token_store import Prepared
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.parallel import Draft
from noise2text.generation.selection import BestScore, Selector
from noise2text.models import System
from noise2text.models.baseline_config import CopySettings
from noise2text.models.registry import Recipe, unchanged
from noise2text.training.config import DataSettings

__all__ = ["RECIPE", "Copy", "CopyingSettings", "build", "fit"]

_BYTES = 262  # byte-level BPE without a merge: the bytes and the special tokens


@dataclass(frozen=True)
class CopyingSettings(DataSettings):
    """Texts as bytes, uncut as far as texts go."""

    vocabulary: int = option(_BYTES, "how many tokens a learned BPE has; 262 are the bytes alone")
    max_source: int = option(1_000_000, "longest source in tokens; what is longer is cut and counted")
    max_target: int = option(1_000_000, "longest target in tokens; what is longer is cut and counted")


class Copy(System):
    """Gives the source back."""

    def __init__(self, settings: CopyingSettings, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer, self.max_source, self.how = tokenizer, settings.max_source, CopySettings()

    def drafts(
        self,
        rows: Sequence[Sequence[int]],
        how: CopySettings,
        *,
        seed: int,
        places: Sequence[int],
        trace: bool,
    ) -> list[Draft]:
        return [Draft([list(row)], [0.0], []) for row in rows]

    def selector(self, how: CopySettings) -> Selector:
        return BestScore()


def build(settings: CopyingSettings, tokenizer: Tokenizer) -> Copy:
    """The system; it comes trained."""
    return Copy(settings, tokenizer)


def fit(settings: CopyingSettings, tokenizer: Tokenizer, pairs: Prepared) -> tuple[CopyingSettings, Copy]:
    """The settings and the system, whatever the pairs."""
    return settings, build(settings, tokenizer)


RECIPE = Recipe(
    name="copy",
    paper="A common baseline",
    section="–",
    line="Gives the source back; nothing is learned.",
    presets={"plain": CopyingSettings(), "tiny": CopyingSettings()},
    default="plain",
    resolve=unchanged,
    build=build,
    fit=fit,
)
