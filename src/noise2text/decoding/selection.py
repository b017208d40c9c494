"""Which of a sentence's candidates is given out: the safest one (MBR), or the likeliest.

Minimum Bayes risk (SeqDiffuSeq, eq. 27; Diffusion-LM) takes from the candidates C the one that the
others agree with most, the risk r being minus a utility u:

    s* = argmin_{s ∈ C} 1/|C| · Σ_{s′ ∈ C} r(s, s′),     r(s, s′) = −u(s, s′)

The sum runs over all of C, the candidate itself included. BLEU and its kin are not symmetric, so u's
direction matters: here, as in eq. 27 and DiffuSeq, the candidate s is the hypothesis and s′ the reference;
Difformer's code has them the other way round. The signature names all of it.

Every utility here is a function of three things: how many n-grams of each order the two texts share
(clipped), and how many symbols each text has, because a text of L symbols has L − n + 1 n-grams. So a text
is split and counted once, and only the sharing is worked out for each pair.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, combinations_with_replacement, repeat
from typing import Any, Protocol

from noise2text.problem import Problem

__all__ = ["MBR", "SELECTORS", "UTILITIES", "BestScore", "Candidate", "NgramUtility", "Selector", "Utility"]


@dataclass(frozen=True)
class Candidate:
    """One finished text of a sentence; its score is the mean token log-probability plus the length's."""

    text: str
    tokens: tuple[int, ...]
    score: float


class Selector(Protocol):
    """A rule that chooses among a sentence's candidates and can say how."""

    @property
    def signature(self) -> str:
        """The rule and everything that changes its choice."""
        ...

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The place of the chosen candidate."""
        ...


class Utility(Protocol):
    """How much a hypothesis is worth if the reference is the truth: the more the better."""

    @property
    def name(self) -> str:
        """What the settings call it."""
        ...

    @property
    def signature(self) -> str:
        """The definition: tokenisation, case, smoothing, version."""
        ...

    def __call__(self, hypothesis: str, reference: str) -> float:
        """The utility of one pair."""
        ...

    def table(self, texts: Sequence[str]) -> list[list[float]]:
        """The utility of every pair of texts: a row a hypothesis, a column a reference."""
        ...


Formula = Callable[[list[int], int, int], float]  # of the shared n-grams by order and both texts' symbols
Grams = tuple[Counter[Hashable], ...]  # one counter an order


@dataclass(frozen=True)
class NgramUtility:
    """A utility that sees only shared n-grams and lengths: a way to split a text, an order and a formula."""

    name: str
    split: Callable[[str], Sequence[Any]]  # into a tuple of words or a string of characters
    order: int
    formula: Formula
    describe: Callable[[], str]  # called late, because it may have to import the definition

    @property
    def signature(self) -> str:
        return self.describe()

    def __call__(self, hypothesis: str, reference: str) -> float:
        ours, theirs = self.split(hypothesis), self.split(reference)
        return self.formula(_shared(self._grams(ours), self._grams(theirs)), len(ours), len(theirs))

    def table(self, texts: Sequence[str]) -> list[list[float]]:
        symbols = [self.split(text) for text in texts]
        grams = [self._grams(each) for each in symbols]
        table = [[0.0] * len(texts) for _ in texts]
        for i, j in combinations_with_replacement(range(len(texts)), 2):
            shared = _shared(grams[i], grams[j])  # the same in both directions; the formula is not
            table[i][j] = self.formula(shared, len(symbols[i]), len(symbols[j]))
            table[j][i] = self.formula(shared, len(symbols[j]), len(symbols[i]))
        return table

    def _grams(self, symbols: Sequence[Any]) -> Grams:
        return tuple(
            Counter(symbols[start : start + n] for start in range(len(symbols) - n + 1))
            for n in range(1, self.order + 1)
        )


def _shared(ours: Grams, theirs: Grams) -> list[int]:
    """The number of common n-grams of each order, each as often as the text that has fewer of it."""
    return [
        sum(min(left[gram], right[gram]) for gram in left.keys() & right.keys())
        for left, right in zip(ours, theirs, strict=True)
    ]


@cache
def _sacrebleu() -> Any:
    """sacrebleu's sentence BLEU, one for the process: it keeps the texts that it has tokenised."""
    from sacrebleu.metrics import BLEU

    return BLEU(effective_order=True)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _words_13a(text: str) -> tuple[str, ...]:
    return tuple(_sacrebleu().tokenizer(text.rstrip()).split())


def _characters(text: str) -> str:
    return "".join(text.split())


def _bleu(shared: list[int], length: int, reference_length: int) -> float:
    """sacrebleu's sentence BLEU, from 0 to 100: exponential smoothing, the orders that the text has."""
    totals = [max(length - n, 0) for n in range(len(shared))]
    bleu = _sacrebleu().compute_bleu(
        shared, totals, length, reference_length, smooth_method="exp", effective_order=True
    )
    return float(bleu.score)


def _bleu_nltk4(shared: list[int], length: int, reference_length: int) -> float:
    """nltk's sentence BLEU with smoothing method 4, from 0 to 1.

    The k-th order without a match counts as ln(length) / (2ᵏ · 5) matches (Chen and Cherry, 2014; nltk 3.5
    and before had another formula). A single word, whose logarithm is 0, has only its unigram.
    """
    if not shared[0]:
        return 0.0
    logarithms, missed = [], 0
    for n, matches in enumerate(shared if length > 1 else shared[:1]):
        missed += not matches
        counted = matches or 1 / (2**missed * 5 / math.log(length))  # nltk's own order, for its last bit
        logarithms.append(math.log(counted / max(length - n, 1)) / len(shared))
    brevity = 1.0 if length > reference_length else math.exp(1 - reference_length / length)
    return brevity * math.exp(math.fsum(logarithms))


def _chrf(shared: list[int], length: int, reference_length: int) -> float:
    """sacrebleu's chrF, from 0 to 100: F₂ of mean precision and recall over the orders that both have."""
    if not any(shared):
        return 0.0
    orders = min(len(shared), length, reference_length)
    precision = recall = 0.0
    for n, matches in enumerate(shared[:orders]):
        precision += matches / (length - n)
        recall += matches / (reference_length - n)
    precision, recall = precision / orders, recall / orders
    return 100 * (5 * precision * recall / (4 * precision + recall))


def _precision(shared: list[int], length: int, reference_length: int) -> float:
    """The share of the hypothesis's symbols that the reference has too, each as often as it has them."""
    return shared[0] / length if length else 0.0


def _bleu_signature() -> str:
    bleu = _sacrebleu()
    bleu.sentence_score("", [""])  # sacrebleu has a signature only once it has seen references
    return str(bleu.get_signature())


def _chrf_signature() -> str:
    from sacrebleu.metrics import CHRF

    chrf = CHRF()
    chrf.sentence_score("", [""])
    return str(chrf.get_signature())


def _nltk4_signature() -> str:
    return "nrefs:1|case:mixed|tok:none|smooth:nltk-method4"


def _unigram_signature() -> str:
    return "nrefs:1|case:mixed|tok:none|clipped:yes"


UTILITIES: dict[str, Utility] = {
    utility.name: utility
    for utility in (
        NgramUtility("bleu", _words_13a, 4, _bleu, _bleu_signature),
        NgramUtility("bleu-nltk4", _words, 4, _bleu_nltk4, _nltk4_signature),
        NgramUtility("chrf", _characters, 6, _chrf, _chrf_signature),
        NgramUtility("unigram", _words, 1, _precision, _unigram_signature),
    )
}


def _rows(table: list[list[float]]) -> list[list[float]]:
    return table


def _columns(table: list[list[float]]) -> list[list[float]]:
    return [list(column) for column in zip(*table, strict=True)]


_DIRECTIONS = {"hypothesis": _rows, "reference": _columns}


@dataclass(frozen=True)
class MBR:
    """The candidate with the least mean risk among all candidates (eq. 27); of equals, the first."""

    utility: str = "bleu"
    candidate_is: str = "hypothesis"  # "reference" in Difformer's released code
    self_pair: bool = True  # eq. 27 sums over all of C; False leaves the candidate's pair with itself out

    def __post_init__(self) -> None:
        _require(self.utility, UTILITIES, "utility")
        _require(self.candidate_is, _DIRECTIONS, "candidate_is")

    @property
    def signature(self) -> str:
        """The utility, its direction, the self-pair and the utility's own definition."""
        own = "yes" if self.self_pair else "no"
        definition = UTILITIES[self.utility].signature
        return f"mbr|u:{self.utility}|candidate:{self.candidate_is}|self:{own}|{definition}"

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The place of the candidate with the highest summed utility, which is the one of least mean risk."""
        copies = Counter(candidate.text for candidate in candidates)
        if len(copies) == 1:
            return 0
        texts = list(copies)
        table = _DIRECTIONS[self.candidate_is](UTILITIES[self.utility].table(texts))
        total = {
            text: math.fsum(chain.from_iterable(map(repeat, row, self._weights(text, copies))))
            for text, row in zip(texts, table, strict=True)
        }
        return _first_best([total[candidate.text] for candidate in candidates])

    def _weights(self, text: str, copies: Counter[str]) -> list[int]:
        """How often each distinct text is met by a candidate with this one."""
        return [count - (other == text and not self.self_pair) for other, count in copies.items()]


@dataclass(frozen=True)
class BestScore:
    """The candidate that the model itself scores highest; of equals, the first."""

    @property
    def signature(self) -> str:
        """The rule's name."""
        return "score"

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The place of the candidate with the highest score."""
        return _first_best([candidate.score for candidate in candidates])


SELECTORS: dict[str, Callable[[], Selector]] = {"mbr": MBR, "score": BestScore}


def _first_best(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


def _require(name: str, known: Collection[str], setting: str) -> None:
    if name not in known:
        raise Problem(f"{setting} {name!r} is unknown: choose one of {', '.join(known)}")
