"""What several texts of one source, best first, are worth to a reader who may choose among them.

With a₁ … aₙ the texts of a source, R its references and q the sentence chrF against the best reference:

    chrF of the k-th      q(aₖ)                           quality[k]
    chrF of the best      max over k of q(aₖ)             best, what an oracle would choose
    right                 how many of a₁ … aₙ are a reference
    nearly right          how many of a₁ … aₙ have q ≥ 70; all that are right are among them
    different             how many different texts there are

Texts are compared by their words in lower case, so that case, punctuation and spaces do not count. A text
that is there twice counts once. Each is one number per source, averaged over the sources. A source that has
fewer than k texts is left out of the k-th mean; the signature says how many were counted.

With one reference, most right texts are taken for wrong: use sources with several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from noise2text.metrics.metric import References, Statistics, count_references, mean_statistics
from noise2text.metrics.sacrebleu_sentences import sentence_chrf_metric, sentence_chrf_signature

__all__ = ["NEARLY_RIGHT", "RankedTexts", "label_alternatives", "measure_alternatives", "normalize_words"]

NEARLY_RIGHT = 70.0
"""The chrF from which a text counts as nearly right: one word of a short sentence differs."""


@dataclass(frozen=True)
class RankedTexts:
    """The different texts of one source, best first, and the chrF of each against the best reference."""

    texts: tuple[str, ...]  # as normalize_words has them
    quality: tuple[float, ...]
    is_right: tuple[bool, ...]

    @property
    def is_nearly_right(self) -> tuple[bool, ...]:
        """Whether each text is a reference or has few characters other than one."""
        pairs = zip(self.is_right, self.quality, strict=True)
        return tuple(right or quality >= NEARLY_RIGHT for right, quality in pairs)


def normalize_words(text: str) -> str:
    """The words of a text in lower case; of a text without words, its signs.

    >>> normalize_words("It's 5 o'clock, Tom!")
    'it s 5 o clock tom'
    """
    return " ".join(re.findall(r"\w+", text.casefold())) or "".join(text.split())


def rank_texts(texts: Sequence[str], references: Sequence[str]) -> RankedTexts:
    """The different texts of a source with their quality; of those with the same words, the first."""
    different: dict[str, str] = {}
    for text in texts:
        different.setdefault(normalize_words(text), text)
    chrf, right = sentence_chrf_metric(), set(map(normalize_words, references))
    quality = (chrf.sentence_score(text, list(references)).score for text in different.values())
    return RankedTexts(tuple(different), tuple(quality), tuple(words in right for words in different))


def measure_alternatives(
    alternatives: Sequence[Sequence[str]], references: References
) -> dict[str, Statistics]:
    """The statistics of every measure; empty if no source has more than one text."""
    n = max(map(len, alternatives), default=0)
    if n < 2:
        return {}
    ranked = [rank_texts(texts, own) for texts, own in zip(alternatives, references, strict=True)]
    signature = f"n:{n}|nrefs:{count_references(references)}"
    same = f"{signature}|case:lc|punct:no"
    chrf = f"{signature}|mean:sentences|{sentence_chrf_signature().removeprefix('nrefs:1|')}"
    nearly = f"{same}|chrF:{NEARLY_RIGHT:g}+"
    named: Iterable[tuple[str, list[float], str]] = (
        ("best", [max(each.quality) for each in ranked if each.quality], chrf),
        *_quality_by_rank(ranked, n, chrf),
        ("right", [float(sum(each.is_right)) for each in ranked], same),
        (
            "nearly_right",
            [float(sum(each.is_nearly_right)) for each in ranked],
            nearly,
        ),
        ("different", [float(len(each.texts)) for each in ranked], same),
    )
    return {
        name: mean_statistics(values, f"{described}|counted:{len(values)}", scale=1)
        for name, values, described in named
        if values
    }


def label_alternatives(name: str) -> str:
    """The label of a measure in tables."""
    kind, _, k = name.partition("_")
    return f"chrF, number {k}" if kind == "quality" else _LABELS[name]


def _quality_by_rank(
    ranked: Sequence[RankedTexts], n: int, signature: str
) -> Iterator[tuple[str, list[float], str]]:
    for k in range(n):
        yield f"quality_{k + 1}", [each.quality[k] for each in ranked if k < len(each.quality)], signature


_LABELS = {
    "best": "chrF, the best",
    "right": "right texts",
    "nearly_right": "nearly right texts",
    "different": "different texts",
}
