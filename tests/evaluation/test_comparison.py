"""One table of several systems; the tests of difference are sacrebleu's."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest

from noise2text.evaluation.comparison import Answers, aligned, judge_all, markdown, tsv
from noise2text.evaluation.published import published
from noise2text.evaluation.significance import paired_bootstrap
from noise2text.problem import Problem

WORDS = ["the", "a", "small", "red", "green", "house", "tree", "stands", "falls", "near", "behind", "bridge"]
CHANCE = random.Random(0)
SOURCES = [" ".join(CHANCE.choices(WORDS, k=9)) for _ in range(60)]
REFERENCES = [(" ".join(reversed(source.split())),) for source in SOURCES]
GOOD = [own[0] for own in REFERENCES]
BAD = [text if place % 2 else "nothing of it" for place, text in enumerate(GOOD)]


def answers(texts: list[str], *, candidates: int = 1, seconds: float = 2.0) -> Answers:
    return Answers(texts, [[text] * candidates for text in texts], seconds)


def test_p_is_what_sacrebleu_finds() -> None:
    """Against its command line, which makes the same test from files."""
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    found = paired_bootstrap({"good": GOOD, "bad": BAD}, REFERENCES, draws=200)
    streams = [[own[0] for own in REFERENCES]]
    systems: list[tuple[str, Sequence[str]]] = [("good", GOOD), ("bad", BAD)]
    _, theirs = PairedTest(systems, {"BLEU": BLEU()}, streams, test_type="bs", n_samples=200)()
    bleu = found["bad"][0]
    assert (bleu.metric, bleu.p) == ("BLEU", theirs["BLEU"][1].p_value)  # type: ignore[union-attr]
    assert bleu.p is not None
    assert bleu.p < 0.01
    assert "bs:200" in bleu.signature
    assert "seed:12345" in bleu.signature
    assert found["good"][0].p is None


def test_a_system_does_not_differ_from_itself() -> None:
    found = paired_bootstrap({"one": BAD, "same": list(BAD)}, REFERENCES, draws=100)
    assert [test.p for test in found["same"]] == [1, 1]


def test_systems_may_have_several_references_of_different_number() -> None:
    references = [(*own, "another") if place % 3 else own for place, own in enumerate(REFERENCES)]
    found = paired_bootstrap({"good": GOOD, "bad": BAD}, references, draws=50)
    assert found["good"][0].score == pytest.approx(100)


def test_lines_that_do_not_pair_up_are_named() -> None:
    with pytest.raises(Problem, match="lines of bad do not pair up"):
        paired_bootstrap({"good": GOOD, "bad": BAD[:-1]}, REFERENCES)


def test_the_comparison_has_speed_quality_diversity_and_copying() -> None:
    systems = {"good": answers(GOOD, candidates=3), "copy": answers(SOURCES, seconds=0.5)}
    result = judge_all(systems, REFERENCES, SOURCES, draws=50)
    good, copy = result["systems"]["good"], result["systems"]["copy"]
    assert good["sentences_per_second"] == 30
    assert copy["sentences_per_second"] == 120
    assert good["exact_match"]["score"] == 100
    assert good["self_bleu"]["score"] == pytest.approx(100)
    assert good["candidates"] == 3
    assert "self_bleu" not in copy
    assert (good["copied"], copy["copied"]) == (0, 1)
    assert copy["bleu"] == result["copy_source"]["bleu"]
    assert json.loads(json.dumps(result)) == result


def test_the_page_shows_each_system_its_settings_and_what_papers_report() -> None:
    result = judge_all({"good": answers(GOOD), "bad": answers(BAD)}, REFERENCES, SOURCES, draws=200)
    result |= {"test": "test.jsonl", "speed": "one core, batch 8"}
    for name, own in result["systems"].items():
        own["made_by"] = f"runs/{name}, steps = 5, seed 0"
    page = markdown(result, published("qqp"))
    row = next(line for line in page.splitlines() if line.startswith("| bad "))
    assert "| 50.00 " in row
    tested = [line for line in page.splitlines() if line.startswith("| bad ") and "BLEU" in line]
    assert tested[0].endswith("* |")
    for part in (
        "one core, batch 8",
        "runs/bad, steps = 5",
        "tok:13a",
        "## qqp, as reported",
        "not measured here",
    ):
        assert part in page, part
    assert "as reported" not in markdown(result)


def test_a_table_is_markdown_whatever_stands_in_it() -> None:
    lines = aligned([["a|b", "c"], ["d", "longer"]]).splitlines()
    assert lines == [r"| a\|b | c      |", "|------|--------|", "| d    | longer |"]


def test_outputs_stay_a_line_and_a_column_each() -> None:
    text = tsv({"one": answers(["a\tb"]), "two": answers(["c\nd"])}, [("ref",)], ["src"])
    assert text == "source\treference\tone\ttwo\nsrc\tref\ta b\tc d\n"
