"""SARI (Xu et al., 2016): how well a text adds, keeps and deletes what its references add, keep and delete.

With the n-grams of the source S, the text C and its r references R, for each order n = 1 … 4:

    add     of the kinds of n-grams in C but not in S, those in any reference, against those in R but not in S
    keep    of what S and C share, what R shares, too, each reference with a weight of 1 / r
    delete  of what S has and C has not, what R has not either

SARI is the mean of three scores, each the mean over the orders; where there is nothing to count, a score is
0. Two definitions are in use. EASSE's, the field's since 2019 and here `sari`: counts are summed over the
corpus, then F₁ of all three. The first released script's, here `sari-sentence`: each sentence has its own
score, the precision for what is deleted, every kind of n-gram counting once, and the mean of the sentences.
EASSE asks for the same number of references everywhere; here each sentence's counts are divided by its
number, which changes nothing then. Words are sacrebleu's (13a), lowercased, as in EASSE.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from noise2text.metrics.score import Array, Metric, Statistics, Texts, count_references, mean, ratio

__all__ = ["sari", "sari_sentence"]

ORDER = 4
Grams = Counter[tuple[str, ...]]


def _easse(texts: Texts) -> Statistics:
    rows = [[number for order in orders for number in _counts(*order)] for orders in _orders(texts)]
    how = "as:EASSE|level:corpus|delete:f1"
    return Statistics(np.array(rows, dtype=np.float64), _of_sums, _signature(how, texts))


def _of_sums(sums: Array) -> Array:
    """The mean F₁ in percent of add, keep and delete over the orders."""
    triples = sums.reshape(*sums.shape[:-1], ORDER * 3, 3)
    correct, ours, theirs = (triples[..., k] for k in range(3))
    return 100 * ratio(2 * correct, ours + theirs).mean(axis=-1)


def _counts(source: Grams, text: Grams, theirs: Grams, references: int) -> list[float]:
    """For add, keep and delete: what is right, what the text did, what the references did."""
    before, after = _times(source, references), _times(text, references)
    added, wanted = text.keys() - source.keys(), theirs.keys() - source.keys()
    kept, to_keep = before & after, before & theirs
    gone, to_go = before - after, before - theirs
    weighted = [
        *((kept & to_keep).total(), kept.total(), to_keep.total()),
        *((gone & to_go).total(), gone.total(), to_go.total()),
    ]
    return [len(added & wanted), len(added), len(wanted), *(count / references for count in weighted)]


def _by_sentence(texts: Texts) -> Statistics:
    values = [fmean(_kinds(*order) for order in orders) for orders in _orders(texts)]
    return mean(values, _signature("as:Xu2016|level:sentence|delete:precision", texts))


def _kinds(source: Grams, text: Grams, theirs: Grams, references: int) -> float:
    """The mean of add, keep and delete of one order, each kind of n-gram counting by its right share."""
    before, after = _times(source, references), _times(text, references)
    added, wanted = text.keys() - source.keys(), theirs.keys() - source.keys()
    kept, to_keep = before & after, before & theirs
    gone = before - after
    good, well_gone = kept & theirs, gone - theirs
    right = len(added & wanted)
    add = _f1(_share(right, len(added)), _share(right, len(wanted)))
    keep = _f1(_share(_parts(good, kept), len(kept)), _share(_parts(good, to_keep), len(to_keep)))
    return (add + keep + _share(_parts(well_gone, gone), len(gone))) / 3


def _parts(good: Grams, of: Grams) -> float:
    return sum(count / of[gram] for gram, count in good.items())


def _share(part: float, whole: int) -> float:
    return part / whole if whole else 0.0


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _times(grams: Grams, number: int) -> Grams:
    return Counter({gram: count * number for gram, count in grams.items()})


def _orders(texts: Texts) -> list[list[tuple[Grams, Grams, Grams, int]]]:
    """For each sentence and order the n-grams of source, text and all references, and the number of these."""
    split = _splitter()
    sentences = zip(texts.sources or (), texts.hypotheses, texts.references, strict=True)
    return [
        [_order(split(source), split(text), [split(one) for one in own], n) for n in range(1, ORDER + 1)]
        for source, text, own in sentences
    ]


def _order(
    source: Sequence[str], text: Sequence[str], references: Sequence[Sequence[str]], n: int
) -> tuple[Grams, Grams, Grams, int]:
    theirs: Grams = Counter()
    for own in references:
        theirs.update(_grams(own, n))
    return _grams(source, n), _grams(text, n), theirs, len(references)


def _grams(words: Sequence[str], n: int) -> Grams:
    return Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))


def _splitter() -> Callable[[str], list[str]]:
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    tokenize: Any = Tokenizer13a()
    return lambda text: tokenize(text.lower()).split()


def _signature(how: str, texts: Texts) -> str:
    return f"{how}|nrefs:{count_references(texts.references)}|case:lc|tok:13a"


sari = Metric("sari", "SARI", _easse, needs_sources=True)
sari_sentence = Metric("sari-sentence", "SARI (sentences)", _by_sentence, needs_sources=True)
