"""How different a system's texts are, after DiffuSeq's table 1.

dist-1       distinct words over words of a text, the mean of all texts: low where words are repeated
div-4        distinct 4-grams over 4-grams of all candidates of a source, the mean over sources
self-BLEU    sentence BLEU of each candidate with the others of its source as references, the mean of all:
             100 where they are all alike

Words are sacrebleu's (13a), as in BLEU. What cannot be counted (no word, no 4-gram, a lone candidate) is left
out of the mean; the signature says how many texts or sources were counted, and where none could be there is
no score.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from statistics import fmean
from typing import Any

from noise2text.evaluation.metrics import Score

__all__ = ["dist_1", "div_4", "self_bleu"]


def dist_1(texts: Sequence[str]) -> Score | None:
    """The mean percentage of a text's words that are distinct."""
    return _mean("dist_1", [_distinct([text], 1) for text in texts])


def div_4(candidates: Sequence[Sequence[str]]) -> Score | None:
    """The mean percentage of 4-grams that are distinct among a source's candidates."""
    return _mean("div_4", [_distinct(own, 4) for own in candidates if len(own) > 1])


def self_bleu(candidates: Sequence[Sequence[str]]) -> Score | None:
    """The mean sentence BLEU of the candidates against the others of their source."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(effective_order=True)
    scores = [_overlap(metric, own) for own in candidates if len(own) > 1]
    return _mean("self_bleu", scores, str(metric.get_signature())) if scores else None


def _overlap(metric: Any, own: Sequence[str]) -> float:
    return fmean(
        metric.sentence_score(text, [*own[:place], *own[place + 1 :]]).score for place, text in enumerate(own)
    )


def _distinct(texts: Iterable[str], order: int) -> float | None:
    """The percentage of all n-grams that are distinct; none if there is no n-gram."""
    rows = [_words(text) for text in texts]
    grams = [tuple(row[i : i + order]) for row in rows for i in range(len(row) - order + 1)]
    return 100 * len(set(grams)) / len(grams) if grams else None


def _words(text: str) -> list[str]:
    words: list[str] = _tokenizer()(text).split()
    return words


@cache
def _tokenizer() -> Any:
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    return Tokenizer13a()


def _mean(name: str, values: Iterable[float | None], signature: str = "tok:13a|case:mixed") -> Score | None:
    counted = [value for value in values if value is not None]
    return Score(name, fmean(counted), f"{signature}|counted:{len(counted)}") if counted else None
