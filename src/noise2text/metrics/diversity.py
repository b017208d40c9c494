"""How different the texts of one source are, for several samples (DiffuSeq takes 3, SeqDiffuSeq 10).

dist-1      distinct words / words of a text, averaged over a source's texts: low if words are repeated
div-4       distinct 4-grams / 4-grams of all texts of a source (Deshpande et al., 2019)
self-BLEU   sentence BLEU of each text with the source's other texts as references, averaged
            (Zhu et al., 2018): 100 if all are the same
distinct    the share of a source's texts that are distinct
words       the mean number of words per text, split at white space

Each is one number per source, averaged over the sources. The first three use sacrebleu's words (13a), as BLEU
does. Sources without a value (no word, no 4-gram, a single text) are left out; the signature says how many
were counted, and if there is none, there is no score.

DiffuSeq's script counts differently, so its measures have their own names: words are split at white space,
missing values are 0, and its self-BLEU is the mean over pairs of texts, the later one being the reference, of
nltk's sentence BLEU with smoothing method 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean

import numpy as np

from noise2text.metrics.mbr_utilities import UTILITIES
from noise2text.metrics.metric import Score, Statistics, mean_statistics
from noise2text.metrics.sacrebleu_sentences import sentence_bleu_metric, sentence_bleu_signature, split_13a

__all__ = ["DIVERSITY_METRICS", "DiversityMetric", "dist_1", "div_4", "self_bleu"]

CandidateLists = Sequence[Sequence[str]]  # the texts of each source
Tokenize = Callable[[str], Sequence[str]]


@dataclass(frozen=True)
class DiversityMetric:
    """A measure of how different the texts of one source are, averaged over the sources."""

    name: str
    label: str
    measure: Callable[[Sequence[str]], float | None] = field(repr=False)  # of one source's texts
    describe: Callable[[], str] = field(repr=False)  # called late, because it may import sacrebleu

    def statistics(self, candidates: CandidateLists) -> Statistics | None:
        """The value of each source that has one; None if no source has."""
        values = [value for value in map(self.measure, candidates) if value is not None]
        return (
            mean_statistics(values, f"{self.describe()}|counted:{len(values)}", scale=1) if values else None
        )

    def __call__(self, candidates: CandidateLists) -> Score | None:
        """The mean over sources; None if no source has a value."""
        found = self.statistics(candidates)
        return None if found is None else Score(self.name, found.score, found.signature)


def dist_1(texts: Sequence[str]) -> Score | None:
    """The percentage of distinct words in a text, averaged over the texts."""
    return DIST_1([[text] for text in texts])


def div_4(candidates: CandidateLists) -> Score | None:
    """The percentage of distinct 4-grams among a source's candidates, averaged over the sources."""
    return DIV_4(candidates)


def self_bleu(candidates: CandidateLists) -> Score | None:
    """The mean sentence BLEU of each candidate against the other candidates of its source."""
    return SELF_BLEU(candidates)


def _mean_distinct_unigrams(texts: Sequence[str], tokenize: Tokenize) -> float | None:
    shares = [share for text in texts if (share := _percent_distinct_ngrams([text], 1, tokenize)) is not None]
    return fmean(shares) if shares else None


def _distinct_4grams(texts: Sequence[str], tokenize: Tokenize) -> float | None:
    return _percent_distinct_ngrams(texts, 4, tokenize) if len(texts) > 1 else None


def _mean_self_bleu(texts: Sequence[str]) -> float | None:
    if len(texts) < 2 or not any(map(str.strip, texts)):
        return None
    others = ([*texts[:index], *texts[index + 1 :]] for index in range(len(texts)))
    scores = (
        sentence_bleu_metric().sentence_score(text, rest) for text, rest in zip(texts, others, strict=True)
    )
    return fmean(score.score for score in scores)


def _distinct_texts(texts: Sequence[str]) -> float | None:
    return 100 * len({text.strip() for text in texts}) / len(texts) if len(texts) > 1 else None


def _mean_length(texts: Sequence[str]) -> float | None:
    return fmean(len(text.split()) for text in texts) if texts else None


def _percent_distinct_ngrams(texts: Iterable[str], order: int, tokenize: Tokenize) -> float | None:
    """The percentage of distinct n-grams; None if there is no n-gram."""
    rows = [tokenize(text) for text in texts]
    grams = [tuple(row[i : i + order]) for row in rows for i in range(len(row) - order + 1)]
    return 100 * len(set(grams)) / len(grams) if grams else None


# As in DiffuSeq's script


def _diffuseq_dist_1(texts: Sequence[str]) -> float | None:
    return fmean(_percent_distinct_ngrams([text], 1, str.split) or 0.0 for text in texts) if texts else None


def _diffuseq_div_4(texts: Sequence[str]) -> float | None:
    return _percent_distinct_ngrams(texts, 4, str.split) or 0.0 if len(texts) > 1 else None


def _diffuseq_self_bleu(texts: Sequence[str]) -> float | None:
    """The mean over all pairs of texts; the earlier is the hypothesis, the later the reference."""
    if len(texts) < 2:
        return None
    utility_matrix = np.array(UTILITIES["bleu-nltk4"].utility_matrix(texts))
    return 100 * float(utility_matrix[np.triu_indices(len(texts), k=1)].mean())


# Signatures


def _self_bleu_signature() -> str:
    return f"refs:others|{sentence_bleu_signature().removeprefix('nrefs:1|')}"


def _signature_13a() -> str:
    return "tok:13a|case:mixed"


def _diffuseq_signature() -> str:
    return "as:DiffuSeq|tok:split|case:mixed|empty:0"


def _diffuseq_bleu_signature() -> str:
    return f"as:DiffuSeq|pairs:later-is-reference|{UTILITIES['bleu-nltk4'].signature}"


DIST_1 = DiversityMetric(
    "dist_1", "dist-1", partial(_mean_distinct_unigrams, tokenize=split_13a), _signature_13a
)
DIV_4 = DiversityMetric("div_4", "div-4", partial(_distinct_4grams, tokenize=split_13a), _signature_13a)
SELF_BLEU = DiversityMetric("self_bleu", "self-BLEU", _mean_self_bleu, _self_bleu_signature)
DIVERSITY_METRICS: tuple[DiversityMetric, ...] = (
    DIST_1,
    DIV_4,
    SELF_BLEU,
    DiversityMetric("distinct", "distinct texts", _distinct_texts, lambda: "percent|space:strip-outer"),
    DiversityMetric("words", "words per text", _mean_length, lambda: "tok:split"),
    DiversityMetric("dist_1_diffuseq", "dist-1 (DiffuSeq)", _diffuseq_dist_1, _diffuseq_signature),
    DiversityMetric("div_4_diffuseq", "div-4 (DiffuSeq)", _diffuseq_div_4, _diffuseq_signature),
    DiversityMetric(
        "self_bleu_diffuseq", "self-BLEU (DiffuSeq)", _diffuseq_self_bleu, _diffuseq_bleu_signature
    ),
)
