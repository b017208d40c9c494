"""Files of texts are evaluated together: candidates in the same file or in one of their own, and a rival."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noise2text.commands.evaluate import EvaluationFiles, evaluate_files
from noise2text.core.errors import Problem
from noise2text.metrics.evaluate import evaluate, evaluate_alternatives, evaluate_diversity, find_metrics
from noise2text.metrics.score_table import collect_score_rows
from noise2text.metrics.significance import paired_bootstrap

TEXTS = ["the cat sat on the mat", "a dog barks", "one two three"]
REFERENCES = ["the cat sat on a mat", "the dog barks", "one two three"]
SETS = [["the cat sat on the mat", "cats sat"], ["a dog barks", "dogs bark"], ["one two three", "three"]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hyp.txt").write_text("\n".join(TEXTS) + "\n")
    (tmp_path / "ref.txt").write_text("\n".join(REFERENCES) + "\n")
    (tmp_path / "rival.txt").write_text("the cat\na dog\none\n")
    rows = [{"text": text, "candidates": own} for text, own in zip(TEXTS, SETS, strict=True)]
    (tmp_path / "hyp.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_texts_alone_are_what_evaluate_says(folder: Path) -> None:
    found = evaluate_files(EvaluationFiles(str(folder / "hyp.txt"), str(folder / "ref.txt")))
    assert found == evaluate(TEXTS, [[one] for one in REFERENCES])


@pytest.mark.parametrize(("texts", "candidates"), [("hyp.jsonl", None), ("hyp.txt", "hyp.jsonl")])
def test_candidates_give_diversity(folder: Path, texts: str, candidates: str | None) -> None:
    own = None if candidates is None else str(folder / candidates)
    found = evaluate_files(EvaluationFiles(str(folder / texts), str(folder / "ref.txt"), candidates=own))
    assert found["diversity"] == evaluate_diversity(SETS)
    assert "self_bleu" in found["diversity"]


def test_alternatives_in_the_file_of_the_texts_are_measured(folder: Path) -> None:
    """A line without them has its text alone, as `generate --n 5` writes for an empty text."""
    rows = [{"text": text, "alternatives": own} for text, own in zip(TEXTS, SETS, strict=True)]
    del rows[1]["alternatives"]
    (folder / "n.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = evaluate_files(EvaluationFiles(str(folder / "n.jsonl"), str(folder / "ref.txt")))
    expected = evaluate_alternatives([SETS[0], TEXTS[1:2], SETS[2]], [[one] for one in REFERENCES])
    assert found["alternatives"] == expected
    assert found["alternatives"]["quality_2"]["signature"].endswith("counted:2")
    shown = {row.name: row for row in collect_score_rows(found)}
    assert shown["chrF, number 2"].value == f"{expected['quality_2']['score']:.2f}"
    assert {"chrF, the best", "right texts", "nearly right texts", "different texts"} <= set(shown)


def test_a_rival_is_tested_by_every_metric_asked_for(folder: Path) -> None:
    files = EvaluationFiles(
        str(folder / "hyp.txt"), str(folder / "ref.txt"), against=str(folder / "rival.txt")
    )
    metrics = find_metrics("bleu,rouge-l,exact_match")
    found = evaluate_files(files, metrics=metrics, confidence=True)
    rivals = {"rival": ["the cat", "a dog", "one"], "ours": TEXTS}
    expected = paired_bootstrap(rivals, [[one] for one in REFERENCES], metrics=metrics)["ours"]
    assert [test["p"] for test in found["against"]["tests"]] == [test.p for test in expected]
    assert [test["metric"] for test in found["against"]["tests"]] == ["BLEU", "ROUGE-L", "exact match"]
    exact = found["against"]["tests"][2]
    assert exact["difference"] == pytest.approx(exact["score"] - exact["other"])
    assert exact["other"] == 0
    assert found["bleu"]["interval"]["signature"] == "percentile|bs:1000|seed:12345"


def test_mistakes_are_named(folder: Path) -> None:
    hyp, ref = str(folder / "hyp.txt"), str(folder / "ref.txt")
    with pytest.raises(Problem, match="has no candidates"):
        evaluate_files(EvaluationFiles(hyp, ref, candidates=hyp))
    short = folder / "short.jsonl"
    short.write_text('{"candidates": ["a", "b"]}\n')
    with pytest.raises(Problem, match="1 lines of candidates and 3 texts"):
        evaluate_files(EvaluationFiles(hyp, ref, candidates=str(short)))
    with pytest.raises(Problem, match="against itself"):
        evaluate_files(EvaluationFiles(hyp, ref, against=hyp))
    (folder / "several.txt").write_text("a\tb\nc\td\ne\tf\n")
    with pytest.raises(Problem, match=r"several texts in each line, .* --json"):
        evaluate_files(EvaluationFiles(str(folder / "several.txt"), ref))
    (folder / "one.txt").write_text("one\n")
    with pytest.raises(Problem, match="do not pair up"):
        evaluate_files(EvaluationFiles(hyp, str(folder / "one.txt")))
