"""The rules of the Moses scripts, as fairseq's preparation of IWSLT14 and WMT14 uses them.

    normalize punctuation → remove unprintable characters → tokenize → clean by length and ratio

sacremoses (the extra `datasets`) ports the tokenizer and the normalizer from Perl. Cleaning counts the words
between spaces after tokenization.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any, Protocol

from noise2text.core.errors import Problem

__all__ = ["MosesLoader", "MosesProcessor", "find_unclean_reason", "load_sacremoses", "replace_unprintable"]


class MosesProcessor(Protocol):
    """The rules for one language."""

    def normalize(self, text: str) -> str:
        """The text with plain punctuation."""

    def tokenize(self, text: str, *, split_dashes: bool) -> str:
        """The words and punctuation marks with spaces between them; `split_dashes` also splits compounds."""


MosesLoader = Callable[[str], MosesProcessor]  # of a language


class _SacremosesProcessor:
    """The rules as sacremoses implements them."""

    def __init__(self, tokenizer: Any, normalizer: Any) -> None:
        self.tokenizer, self.normalizer = tokenizer, normalizer

    def normalize(self, text: str) -> str:
        return str(self.normalizer.normalize(text))

    def tokenize(self, text: str, *, split_dashes: bool) -> str:
        return str(
            self.tokenizer.tokenize(text, aggressive_dash_splits=split_dashes, return_str=True, escape=True)
        )


def load_sacremoses(language: str) -> MosesProcessor:
    """The rules for a language, from the package sacremoses."""
    try:
        from sacremoses import MosesPunctNormalizer, MosesTokenizer
    except ImportError as error:
        raise Problem("The Moses rules need sacremoses: pip install 'noise2text[datasets]'.") from error
    return _SacremosesProcessor(MosesTokenizer(lang=language), MosesPunctNormalizer(lang=language))


def replace_unprintable(text: str) -> str:
    """The text with a space instead of each unprintable character."""
    if text.isprintable():
        return text
    return "".join(" " if unicodedata.category(letter).startswith("C") else letter for letter in text)


def find_unclean_reason(src: str, trg: str, *, max_words: int, max_ratio: float) -> str:
    """Why Moses's cleaning would remove a tokenized pair; empty if it would not."""
    lengths = (len(src.split()), len(trg.split()))
    if min(lengths) < 1:
        return "a side is empty"
    if max(lengths) > max_words:
        return f"a side has more than {max_words} words"
    if max(lengths) > max_ratio * min(lengths):
        return f"one side has more than {max_ratio:g} times the words of the other"
    return ""
