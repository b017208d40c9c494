"""How different a system's texts are: several samples of each source (DiffuSeq takes 3, SeqDiffuSeq 10).

dist-1      distinct words over words of a text; the mean of a source's texts: low where words are repeated
div-4       distinct 4-grams over 4-grams of all texts of a source (Deshpande et al., 2019)
self-BLEU   sentence BLEU of each text with the others of its source as references, the mean of a source
            (Zhu et al., 2018): 100 where they are all alike
distinct    the share of a source's texts that differ from each other
words       the mean length of a source's texts, between white space

Each is a number a source, then the mean over sources. Words of the first three are sacrebleu's (13a), as in
BLEU. What cannot be counted (no word, no 4-gram, a lone text) is left out; the signature says how many
sources were counted, and where none could be there is no score.

DiffuSeq's script counts otherwise, and so has names of its own: words stand between white space, what
cannot be counted is 0, and its self-BLEU is the mean over pairs of texts, the later being the reference, of
nltk's sentence BLEU with smoothing method 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from statistics import fmean
from typing import Any

import numpy as np

from noise2text.metrics.score import Score, Statistics, mean
from noise2text.metrics.utilities import UTILITIES

__all__ = ["DIVERSITIES", "Diversity", "dist_1", "div_4", "self_bleu"]

Sets = Sequence[Sequence[str]]  # the texts of each source
Words = Callable[[str], list[str]]


@dataclass(frozen=True)
class Diversity:
    """A way to see how different the texts of each source are: the mean of a number a source."""

    name: str
    label: str
    measure: Callable[[Sequence[str]], float | None] = field(repr=False)  # of one source's texts
    describe: Callable[[], str] = field(repr=False)  # called late: it may have to import

    def statistics(self, candidates: Sets) -> Statistics | None:
        """The number of each source that has one; none where no source has."""
        values = [value for value in map(self.measure, candidates) if value is not None]
        return mean(values, f"{self.describe()}|counted:{len(values)}", scale=1) if values else None

    def __call__(self, candidates: Sets) -> Score | None:
        """The mean over sources; none where nothing could be counted."""
        found = self.statistics(candidates)
        return None if found is None else Score(self.name, found.score, found.signature)


def dist_1(texts: Sequence[str]) -> Score | None:
    """The mean percentage of a text's words that are distinct."""
    return DIST_1([[text] for text in texts])


def div_4(candidates: Sets) -> Score | None:
    """The mean percentage of 4-grams that are distinct among a source's candidates."""
    return DIV_4(candidates)


def self_bleu(candidates: Sets) -> Score | None:
    """The mean sentence BLEU of the candidates against the others of their source."""
    return SELF_BLEU(candidates)


def _repeated(texts: Sequence[str], words: Words) -> float | None:
    shares = [share for text in texts if (share := _distinct([text], 1, words)) is not None]
    return fmean(shares) if shares else None


def _shared(texts: Sequence[str], words: Words) -> float | None:
    return _distinct(texts, 4, words) if len(texts) > 1 else None


def _overlap(texts: Sequence[str]) -> float | None:
    if len(texts) < 2 or not any(map(str.strip, texts)):
        return None
    others = ([*texts[:place], *texts[place + 1 :]] for place in range(len(texts)))
    scores = (_sentence_bleu().sentence_score(text, rest) for text, rest in zip(texts, others, strict=True))
    return fmean(score.score for score in scores)


def _different(texts: Sequence[str]) -> float | None:
    return 100 * len({text.strip() for text in texts}) / len(texts) if len(texts) > 1 else None


def _length(texts: Sequence[str]) -> float | None:
    return fmean(len(text.split()) for text in texts) if texts else None


def _distinct(texts: Iterable[str], order: int, words: Words) -> float | None:
    """The percentage of all n-grams that are distinct; none if there is no n-gram."""
    rows = [words(text) for text in texts]
    grams = [tuple(row[i : i + order]) for row in rows for i in range(len(row) - order + 1)]
    return 100 * len(set(grams)) / len(grams) if grams else None


# As DiffuSeq's script counts


def _repeated_or_zero(texts: Sequence[str]) -> float | None:
    return fmean(_distinct([text], 1, str.split) or 0.0 for text in texts) if texts else None


def _shared_or_zero(texts: Sequence[str]) -> float | None:
    return _distinct(texts, 4, str.split) or 0.0 if len(texts) > 1 else None


def _pairs(texts: Sequence[str]) -> float | None:
    """The mean over all pairs, an earlier text being the hypothesis and a later one the reference."""
    if len(texts) < 2:
        return None
    table = np.array(UTILITIES["bleu-nltk4"].table(texts))
    return 100 * float(table[np.triu_indices(len(texts), k=1)].mean())


# How it was counted


def _words_13a(text: str) -> list[str]:
    words: list[str] = _sentence_bleu().tokenizer(text).split()
    return words


@cache
def _sentence_bleu() -> Any:
    from sacrebleu.metrics import BLEU

    return BLEU(effective_order=True)


def _bleu_signature() -> str:
    metric = _sentence_bleu()
    metric.sentence_score("", [""])  # sacrebleu has a signature only once it has seen references
    return f"refs:others|{str(metric.get_signature()).removeprefix('nrefs:1|')}"


def _plain() -> str:
    return "tok:13a|case:mixed"


def _published() -> str:
    return "as:DiffuSeq|tok:split|case:mixed|empty:0"


def _nltk() -> str:
    return f"as:DiffuSeq|pairs:later-is-reference|{UTILITIES['bleu-nltk4'].signature}"


DIST_1 = Diversity("dist_1", "dist-1", partial(_repeated, words=_words_13a), _plain)
DIV_4 = Diversity("div_4", "div-4", partial(_shared, words=_words_13a), _plain)
SELF_BLEU = Diversity("self_bleu", "self-BLEU", _overlap, _bleu_signature)
DIVERSITIES: tuple[Diversity, ...] = (
    DIST_1,
    DIV_4,
    SELF_BLEU,
    Diversity("distinct", "distinct texts", _different, lambda: "percent|space:strip-outer"),
    Diversity("words", "words a text", _length, lambda: "tok:split"),
    Diversity("dist_1_diffuseq", "dist-1 (DiffuSeq)", _repeated_or_zero, _published),
    Diversity("div_4_diffuseq", "div-4 (DiffuSeq)", _shared_or_zero, _published),
    Diversity("self_bleu_diffuseq", "self-BLEU (DiffuSeq)", _pairs, _nltk),
)
