"""Whether two systems differ by more than the choice of test sentences: paired bootstrap (Koehn, 2004).

The sentences are drawn with replacement a thousand times, for both systems alike; p is how often a difference
as large as the one seen would come about by that alone. All of it is sacrebleu's, and its signature says the
number of draws and their seed; but where there is no difference at all, p is 1, not its 1/(draws + 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, cast

from noise2text.evaluation.metrics import References
from noise2text.problem import Problem

__all__ = ["Tested", "paired_bootstrap"]


@dataclass(frozen=True)
class Tested:
    """A system's score, the mean and 95 % interval of its resamples, and p of its difference to the first."""

    metric: str
    score: float
    mean: float
    interval: float  # half of its width
    p: float | None  # none for the first system
    signature: str


def paired_bootstrap(
    systems: Mapping[str, Sequence[str]], references: References, *, draws: int = 1000
) -> dict[str, list[Tested]]:
    """Each system's texts tested against the first system's, by BLEU and chrF."""
    from sacrebleu.metrics import BLEU, CHRF
    from sacrebleu.significance import PairedTest

    for name, texts in systems.items():
        if len(texts) != len(references):
            counts = f"{len(texts)} texts and {len(references)} references"
            raise Problem(f"The lines of {name} do not pair up, {counts}: give one line a sentence.")
    streams = list(zip_longest(*references))
    metrics = {"BLEU": BLEU(), "chrF": CHRF()}
    test = PairedTest(list(systems.items()), metrics, streams, test_type="bs", n_samples=draws)
    signatures, results = cast(tuple[dict[str, Any], dict[str, list[Any]]], test())
    found: dict[str, list[Tested]] = {name: [] for name in systems}
    for metric, signature in signatures.items():
        for name, result in zip(systems, results[metric], strict=True):
            numbers = (float(result.score), float(result.mean), float(result.ci))
            none_at_all = result.p_value is not None and result.score == results[metric][0].score
            p = 1.0 if none_at_all else result.p_value
            found[name].append(Tested(metric, *numbers, p=p, signature=str(signature)))
    return found
