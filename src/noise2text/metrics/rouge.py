"""ROUGE (Lin, 2004): mean F₁ of shared unigrams, bigrams and longest common subsequences.

    ROUGE-L = 2 P R / (P + R),   P = LCS / words of the text,   R = LCS / words of the reference

ROUGE-1, -2 and -L are those of the package rouge-score, without stemming; with several references, the best
one counts. DiffuSeq reports the ROUGE-L of torchmetrics. With one reference it is the same number; with
several it uses the one with the best ROUGE-1, so it has a name of its own. All of them use only the letters a
to z and digits: a text in another script has no words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial

from noise2text.core.errors import Problem
from noise2text.metrics.metric import EvaluationInput, Metric, Statistics, count_references, mean_statistics

__all__ = ["ROUGE_METRICS", "rouge_l", "rouge_l_torchmetrics"]


def _by_rouge_score(texts: EvaluationInput, *, kind: str) -> Statistics:
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError as error:
        raise Problem("ROUGE needs the package rouge-score: pip install 'noise2text[metrics]'.") from error
    from importlib.metadata import version

    scorer = RougeScorer([kind])
    values = [
        scorer.score_multi(list(own), text)[kind].fmeasure
        for text, own in zip(texts.hypotheses, texts.references, strict=True)
    ]
    num_references = count_references(texts.references)
    signature = f"{kind}|nrefs:{num_references}|refs:best|stem:no|tok:a-z0-9|case:lc|mean:sentences"
    return mean_statistics(values, f"{signature}|rouge-score:{version('rouge-score')}")


def _torchmetrics(texts: EvaluationInput) -> Statistics:
    pairs = zip(texts.hypotheses, texts.references, strict=True)
    values = [_rouge_l_of_best_rouge_1(_words(text), [_words(own) for own in refs]) for text, refs in pairs]
    num_references = count_references(texts.references)
    signature = f"rougeL|as:torchmetrics<1.6|nrefs:{num_references}|refs:best-by-rouge1"
    return mean_statistics(values, f"{signature}|stem:no|tok:a-z0-9|case:lc|mean:sentences")


def _rouge_l_of_best_rouge_1(words: list[str], references: Sequence[list[str]]) -> float:
    """ROUGE-L with the first reference of the highest ROUGE-1."""
    best = max(references, key=lambda own: _rouge_1(words, own))
    return _f1(_lcs_length(words, best), len(words), len(best))


def _rouge_1(hypothesis: list[str], reference: list[str]) -> float:
    return _f1((Counter(hypothesis) & Counter(reference)).total(), len(hypothesis), len(reference))


def _f1(shared: int, hypothesis: int, reference: int) -> float:
    return 2 * shared / (hypothesis + reference) if shared else 0.0


def _lcs_length(hypothesis: list[str], reference: list[str]) -> int:
    """The length of the longest common subsequence, by dynamic programming row by row."""
    row = [0] * (len(reference) + 1)
    for word in hypothesis:
        above = row
        row = [0]
        for index, other in enumerate(reference):
            row.append(above[index] + 1 if word == other else max(above[index + 1], row[index]))
    return row[-1]


def _words(text: str) -> list[str]:
    return re.findall("[a-z0-9]+", text.lower())


rouge_l = Metric("rouge-l", "ROUGE-L", partial(_by_rouge_score, kind="rougeL"))
rouge_l_torchmetrics = Metric("rouge-l-torchmetrics", "ROUGE-L (torchmetrics)", _torchmetrics)
ROUGE_METRICS: tuple[Metric, ...] = (
    Metric("rouge-1", "ROUGE-1", partial(_by_rouge_score, kind="rouge1")),
    Metric("rouge-2", "ROUGE-2", partial(_by_rouge_score, kind="rouge2")),
    rouge_l,
    rouge_l_torchmetrics,
)
