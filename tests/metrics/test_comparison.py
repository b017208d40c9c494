"""One table of several systems."""

from __future__ import annotations

import json
import random

import pytest

from noise2text.metrics.comparison import (
    SystemOutput,
    evaluate_systems,
    format_markdown_table,
    to_markdown,
    to_tsv,
)
from noise2text.metrics.published import published

WORDS = ["the", "a", "small", "red", "green", "house", "tree", "stands", "falls", "near", "behind", "bridge"]
CHANCE = random.Random(0)
SOURCES = [" ".join(CHANCE.choices(WORDS, k=9)) for _ in range(60)]
REFERENCES = [(" ".join(reversed(source.split())),) for source in SOURCES]
GOOD = [own[0] for own in REFERENCES]
BAD = [text if place % 2 else "nothing of it" for place, text in enumerate(GOOD)]


def answers(texts: list[str], *, candidates: int = 1, seconds: float = 2.0) -> SystemOutput:
    return SystemOutput(texts, [[text] * candidates for text in texts], seconds)


def test_the_comparison_has_speed_quality_diversity_and_copying() -> None:
    systems = {"good": answers(GOOD, candidates=3), "copy": answers(SOURCES, seconds=0.5)}
    result = evaluate_systems(systems, REFERENCES, SOURCES, n_resamples=50)
    good, copy = result["systems"]["good"], result["systems"]["copy"]
    assert good["sentences_per_second"] == 30
    assert copy["sentences_per_second"] == 120
    assert good["exact_match"]["score"] == 100
    assert good["rouge-l"]["score"] == 100
    assert good["rouge-l"]["signature"].startswith("rougeL|")
    assert good["self_bleu"]["score"] == pytest.approx(100)
    assert good["candidates"] == 3
    assert "self_bleu" not in copy
    assert (good["copied"], copy["copied"]) == (0, 1)
    assert copy["bleu"] == result["copy_source"]["bleu"]
    assert json.loads(json.dumps(result)) == result


def test_the_page_shows_each_system_its_settings_and_what_papers_report() -> None:
    result = evaluate_systems(
        {"good": answers(GOOD), "bad": answers(BAD)}, REFERENCES, SOURCES, n_resamples=200
    )
    result |= {"test": "test.jsonl", "speed": "one core, batch 8"}
    for name, own in result["systems"].items():
        own["made_by"] = f"runs/{name}, steps = 5, seed 0"
    page = to_markdown(result, published("qqp"))
    row = next(line for line in page.splitlines() if line.startswith("| bad "))
    assert "| 50.00 " in row
    tested = [line for line in page.splitlines() if line.startswith("| bad ") and "BLEU" in line]
    assert tested[0].endswith("* |")
    for part in (
        "one core, batch 8",
        "runs/bad, steps = 5",
        "tok:13a",
        "| ROUGE-L ",
        "- ROUGE-L: `rougeL|",
        "## qqp, as reported",
        "not measured here",
    ):
        assert part in page, part
    assert "as reported" not in to_markdown(result)


def test_a_table_is_markdown_whatever_stands_in_it() -> None:
    lines = format_markdown_table([["a|b", "c"], ["d", "longer"]]).splitlines()
    assert lines == [r"| a\|b | c      |", "|------|--------|", "| d    | longer |"]


def test_outputs_stay_a_line_and_a_column_each() -> None:
    text = to_tsv({"one": answers(["a\tb"]), "two": answers(["c\nd"])}, [("ref",)], ["src"])
    assert text == "source\treference\tone\ttwo\nsrc\tref\ta b\tc d\n"
