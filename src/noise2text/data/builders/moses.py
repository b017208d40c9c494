"""The rules of the Moses scripts, as fairseq's preparation of IWSLT14 and WMT14 uses them.

    normalise punctuation → drop what cannot be printed → tokenise → clean by length and ratio

sacremoses (the extra `datasets`) ports the tokenizer and the normaliser from Perl. Cleaning counts words that
are parted by spaces, after tokenisation.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any, Protocol

from noise2text.core.errors import Problem

__all__ = ["Moses", "Rules", "printable", "sacremoses_rules", "why_unclean"]


class Moses(Protocol):
    """The rules for one language."""

    def normalise(self, text: str) -> str:
        """The text with plain punctuation."""

    def tokenise(self, text: str, *, dashes: bool) -> str:
        """The words and marks, parted by spaces; `dashes` parts compounds, too."""


Rules = Callable[[str], Moses]  # of a language


class _Sacremoses:
    """The rules as sacremoses has them."""

    def __init__(self, tokenizer: Any, normalizer: Any) -> None:
        self.tokenizer, self.normalizer = tokenizer, normalizer

    def normalise(self, text: str) -> str:
        return str(self.normalizer.normalize(text))

    def tokenise(self, text: str, *, dashes: bool) -> str:
        return str(self.tokenizer.tokenize(text, aggressive_dash_splits=dashes, return_str=True, escape=True))


def sacremoses_rules(language: str) -> Moses:
    """The rules for a language, from the package sacremoses."""
    try:
        from sacremoses import MosesPunctNormalizer, MosesTokenizer
    except ImportError as error:
        raise Problem("The Moses rules need the package sacremoses: install noise2text[datasets].") from error
    return _Sacremoses(MosesTokenizer(lang=language), MosesPunctNormalizer(lang=language))


def printable(text: str) -> str:
    """The text with a space for each character that cannot be printed."""
    if text.isprintable():
        return text
    return "".join(" " if unicodedata.category(letter).startswith("C") else letter for letter in text)


def why_unclean(src: str, trg: str, *, longest: int, ratio: float) -> str:
    """Why the cleaning of Moses leaves a tokenised pair out; empty if it does not."""
    lengths = (len(src.split()), len(trg.split()))
    if min(lengths) < 1:
        return "a side is empty"
    if max(lengths) > longest:
        return f"a side has more than {longest} words"
    if max(lengths) > ratio * min(lengths):
        return f"one side has more than {ratio:g} times the words of the other"
    return ""
