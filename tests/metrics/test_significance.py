"""The paired bootstrap is sacrebleu's where it has the metric, and works with every other."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from noise2text.core.errors import Problem
from noise2text.metrics.evaluate import METRICS_BY_NAME
from noise2text.metrics.significance import paired_bootstrap

CHANCE = random.Random(1)
WORDS = ["the", "a", "small", "red", "green", "house", "tree", "stands", "falls", "near", "behind", "bridge"]
SOURCES = [" ".join(CHANCE.choices(WORDS, k=9)) for _ in range(80)]
REFERENCES = [[" ".join(reversed(source.split()))] for source in SOURCES]


def spoilt(rate: float) -> list[str]:
    return [
        " ".join(CHANCE.choice(WORDS) if CHANCE.random() < rate else word for word in own[0].split())
        for own in REFERENCES
    ]


GOOD, ALIKE, BAD = spoilt(0.3), spoilt(0.3), spoilt(0.5)


@pytest.mark.parametrize("rival", [ALIKE, BAD], ids=["alike", "bad"])
def test_p_and_intervals_are_sacrebleus(rival: list[str]) -> None:
    systems: list[tuple[str, Sequence[str]]] = [("good", GOOD), ("rival", rival)]
    metrics = {"BLEU": BLEU(), "chrF2": CHRF(), "TER": TER()}
    streams = [[own[0] for own in REFERENCES]]
    _, theirs = PairedTest(systems, metrics, streams, test_type="bs", n_samples=300)()
    named = [METRICS_BY_NAME[name] for name in ("bleu", "chrf", "ter")]
    found = paired_bootstrap(dict(systems), REFERENCES, metrics=named, n_resamples=300)
    for ours, name in zip(found["rival"], metrics, strict=True):
        oracle = theirs[name][1]
        assert ours.metric == name.rstrip("2")
        assert ours.p == pytest.approx(oracle.p_value)  # type: ignore[union-attr]
        assert ours.mean == pytest.approx(oracle.mean, rel=1e-5)  # type: ignore[union-attr]
        assert ours.interval == pytest.approx(oracle.ci, rel=1e-3)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", METRICS_BY_NAME)
def test_every_metric_tells_a_good_system_from_a_bad_one(name: str) -> None:
    metric = METRICS_BY_NAME[name]
    bad = list(SOURCES) if name in ("copies", "source_bleu") else ["nothing of it"] * len(SOURCES)
    good = [own[0] for own in REFERENCES]
    rivals = {"good": good, "bad": bad, "same": list(good)}
    found = paired_bootstrap(rivals, REFERENCES, SOURCES, metrics=[metric], n_resamples=100)
    assert found["bad"][0].p == pytest.approx(1 / 101)
    assert found["same"][0].p == 1
    assert found["good"][0].p is None
    assert found["bad"][0].signature.endswith("|bs:100|seed:12345")


def test_lines_that_do_not_pair_up_are_named() -> None:
    with pytest.raises(Problem, match="lines of bad do not pair up"):
        paired_bootstrap({"good": GOOD, "bad": BAD[:-1]}, REFERENCES)


def test_a_system_does_not_differ_from_itself() -> None:
    found = paired_bootstrap({"one": BAD, "same": list(BAD)}, REFERENCES, n_resamples=100)
    assert [test.p for test in found["same"]] == [1, 1]


def test_systems_may_have_several_references_of_different_number() -> None:
    references = [(*own, "another") if place % 3 else own for place, own in enumerate(REFERENCES)]
    found = paired_bootstrap({"good": [own[0] for own in REFERENCES], "bad": BAD}, references, n_resamples=50)
    assert found["good"][0].score == pytest.approx(100)
