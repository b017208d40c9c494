"""sacrebleu's sentence metrics, their words and their signatures, for all that counts sentence by sentence.

Sentence BLEU has effective order: the orders that a short sentence has no n-gram of do not count. There is
one object of each metric per process, because sacrebleu caches tokenised texts.
"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import chain
from typing import Any

__all__ = [
    "sentence_bleu_metric",
    "sentence_bleu_signature",
    "sentence_chrf_metric",
    "sentence_chrf_signature",
    "split_13a",
]


@cache
def sentence_bleu_metric() -> Any:
    """sacrebleu's BLEU with effective order."""
    from sacrebleu.metrics import BLEU

    return BLEU(effective_order=True)


@cache
def sentence_chrf_metric() -> Any:
    """sacrebleu's chrF."""
    from sacrebleu.metrics import CHRF

    return CHRF()


def sentence_bleu_signature() -> str:
    """The signature of `sentence_bleu_metric` with one reference, "nrefs:1|…"."""
    return _signature(sentence_bleu_metric())


def sentence_chrf_signature() -> str:
    """The signature of `sentence_chrf_metric` with one reference, "nrefs:1|…"."""
    return _signature(sentence_chrf_metric())


def split_13a(text: str) -> tuple[str, ...]:
    """sacrebleu's 13a tokens, word by word: its rules never look past a space.

    Only a line break after a hyphen can join two words.
    """
    if "\n" in text:
        return tuple(sentence_bleu_metric().tokenizer(text.rstrip()).split())
    return tuple(chain.from_iterable(map(_split_word_13a, text.split())))


@lru_cache(maxsize=1 << 16)
def _split_word_13a(word: str) -> tuple[str, ...]:
    if word.isalnum() and word.isascii():  # the rules are about other characters only
        return (word,)
    return tuple(sentence_bleu_metric().tokenizer(word).split())


def _signature(metric: Any) -> str:
    metric.sentence_score("", [""])  # sacrebleu has a signature only once it has seen references
    return str(metric.get_signature())
