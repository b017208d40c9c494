"""ROUGE (Lin, 2004): F₁ of shared words, pairs of words and longest common subsequences, a mean of sentences.

    ROUGE-L = 2 P R / (P + R),   P = LCS / words of the text,   R = LCS / words of the reference

ROUGE-1, -2 and -L are those of the package rouge-score, without stemming; of several references the best
counts. DiffuSeq reports the ROUGE-L of torchmetrics. With one reference it is the same number; of several
it takes the one that is best by ROUGE-1, and so has a name of its own. All of them know only the letters a
to z and digits: a text in another script has no words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial

from noise2text.core.errors import Problem
from noise2text.metrics.score import Metric, Statistics, Texts, count_references, mean

__all__ = ["ROUGES", "rouge_l", "rouge_l_torchmetrics"]


def _by_rouge_score(texts: Texts, *, kind: str) -> Statistics:
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError as error:
        raise Problem("ROUGE needs the package rouge-score: install noise2text[metrics].") from error
    from importlib.metadata import version

    scorer = RougeScorer([kind])
    values = [
        scorer.score_multi(list(own), text)[kind].fmeasure
        for text, own in zip(texts.hypotheses, texts.references, strict=True)
    ]
    counted = count_references(texts.references)
    how = f"{kind}|nrefs:{counted}|refs:best|stem:no|tok:a-z0-9|case:lc|mean:sentences"
    return mean(values, f"{how}|rouge-score:{version('rouge-score')}")


def _torchmetrics(texts: Texts) -> Statistics:
    pairs = zip(texts.hypotheses, texts.references, strict=True)
    values = [_chosen_by_rouge_1(_words(text), [_words(own) for own in refs]) for text, refs in pairs]
    counted = count_references(texts.references)
    how = f"rougeL|as:torchmetrics|nrefs:{counted}|refs:best-by-rouge1"
    return mean(values, f"{how}|stem:no|tok:a-z0-9|case:lc|mean:sentences")


def _chosen_by_rouge_1(words: list[str], references: Sequence[list[str]]) -> float:
    """ROUGE-L with the first of the references whose ROUGE-1 is highest."""
    best = max(references, key=lambda own: _unigrams(words, own))
    return _f1(_subsequence(words, best), len(words), len(best))


def _unigrams(ours: list[str], theirs: list[str]) -> float:
    return _f1((Counter(ours) & Counter(theirs)).total(), len(ours), len(theirs))


def _f1(shared: int, ours: int, theirs: int) -> float:
    return 2 * shared / (ours + theirs) if shared else 0.0


def _subsequence(ours: list[str], theirs: list[str]) -> int:
    """The length of the longest common subsequence, a row of the usual table at a time."""
    row = [0] * (len(theirs) + 1)
    for word in ours:
        above = row
        row = [0]
        for place, other in enumerate(theirs):
            row.append(above[place] + 1 if word == other else max(above[place + 1], row[place]))
    return row[-1]


def _words(text: str) -> list[str]:
    return re.findall("[a-z0-9]+", text.lower())


rouge_l = Metric("rouge-l", "ROUGE-L", partial(_by_rouge_score, kind="rougeL"))
rouge_l_torchmetrics = Metric("rouge-l-torchmetrics", "ROUGE-L (torchmetrics)", _torchmetrics)
ROUGES: tuple[Metric, ...] = (
    Metric("rouge-1", "ROUGE-1", partial(_by_rouge_score, kind="rouge1")),
    Metric("rouge-2", "ROUGE-2", partial(_by_rouge_score, kind="rouge2")),
    rouge_l,
    rouge_l_torchmetrics,
)
