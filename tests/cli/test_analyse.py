"""The command analyse, from files to files; every mistake is one sentence and a failure."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from noise2text.analysis.catalogue import ANALYSES

from .conftest import Outcome

Run = Callable[..., Outcome]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Six pairs, a system that has all right, and one that forgets the end of long ones."""
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    targets = [" ".join(words[: 3 + place]) for place in range(6)]
    pairs = [{"src": target.upper(), "trg": target} for target in targets]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    (tmp_path / "good.txt").write_text("".join(f"{target}\n" for target in targets))
    (tmp_path / "bad.txt").write_text("".join(f"{' '.join(target.split()[:4])}\n" for target in targets))
    (tmp_path / "empty.txt").write_text("")
    return tmp_path


def test_lengths_are_analyzed_from_files_to_files(run: Run, files: Path) -> None:
    outputs = [f"--hyp=best={files / 'good.txt'}", f"--hyp={files / 'bad.txt'}"]
    given = ["lengths", *outputs, "--test", files / "test.jsonl", "--set", "buckets=3"]
    done = run("analyse", *given, "--out", files / "out")
    assert done.code == 0, done.err
    names = {"bleu-by-length", "relative-difference", "slope-tests"}
    assert {path.name for path in (files / "out").iterdir()} == {
        f"{name}.{kind}" for name in names for kind in ("json", "csv", "svg", "png")
    }
    rows = list(csv.DictReader((files / "out" / "bleu-by-length.csv").open()))
    assert [row["system"] for row in rows] == ["best"] * 3 + ["bad"] * 3
    assert [round(float(row["bleu"])) for row in rows[:3]] == [100] * 3
    assert ">over bad<" in (files / "out" / "relative-difference.svg").read_text()
    assert "Demirag (2023), table 4.3" in done.out
    assert "| best " in done.out
    findings = json.loads(run("analyse", *given, "--out", files / "out", "--json").out)
    assert {finding["name"] for finding in findings} == names


def test_runs_and_models_are_analyzed_by_their_folders(run: Run, model: Path, files: Path) -> None:
    done = run("analyse", "curves", model, "--out", files / "out", "--set", "only=loss,valid_bleu")
    assert done.code == 0, done.err
    assert {path.stem for path in (files / "out").iterdir()} == {"curve-loss", "curve-valid_bleu"}
    given = [
        "--test",
        files / "test.jsonl",
        "--set",
        "sentences=1",
        "--set",
        "shown_steps=2",
        "--device",
        "cpu",
    ]
    shown = run("analyse", "traces", model, *given, "--out", files / "traces")
    assert shown.code == 0, shown.err
    assert [path.name for path in sorted((files / "traces").iterdir())] == ["traces.csv", "traces.json"]
    assert len(json.loads((files / "traces" / "traces.json").read_text())["rows"]) == 3


def test_the_list_names_all_with_their_needs_and_settings(run: Run) -> None:
    listed = json.loads(run("analyse", "--list", "--json").out)
    assert [row["name"] for row in listed] == list(ANALYSES)
    assert listed[0]["needs"] == ["outputs", "pairs"]
    assert listed[0]["settings"]["buckets"]["value"] == 5
    plain = run("analyse", "--list").out
    for name in ANALYSES:
        assert f"{name}  (needs" in plain
    assert "--set buckets=5" in plain


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("lenghts --out OUT", "did you mean lengths?"),
        ("lengths", "Give an analysis and an output folder"),
        ("--out OUT", "Give an analysis and an output folder"),
        ("lengths --out OUT", "needs outputs"),
        ("lengths --hyp x=FILES/good.txt --out OUT", "needs pairs"),
        ("lengths --hyp x=FILES/missing.txt --test FILES/test.jsonl --out OUT", "There is no file"),
        ("lengths --hyp x=FILES/empty.txt --test FILES/test.jsonl --out OUT", "has no lines"),
        ("lengths --hyp x=FILES/good.txt --test FILES/empty.txt --out OUT", "has no pairs"),
        ("lengths --hyp =FILES/good.txt --out OUT", "takes NAME=FILE"),
        ("lengths --hyp FILES/good.txt --hyp FILES/good.txt --out OUT", "Two outputs are called"),
        ("lengths --hyp x=FILES/good.txt --out OUT --set bucket=3", "did you mean buckets?"),
        (
            "lengths --hyp x=FILES/good.txt --test FILES/test.jsonl --out FILES/good.txt/out",
            "out cannot be written",
        ),
        ("curves FILES/missing --out OUT", "There is no folder"),
        ("curves FILES --out OUT", "has no metrics.jsonl"),
        ("curves FILES --out FILES/good.txt", "is a file; --out must be a folder"),
    ],
)
def test_mistakes_are_one_sentence(run: Run, files: Path, arguments: str, words: str) -> None:
    filled = [
        each.replace("FILES", str(files)).replace("OUT", str(files / "out")) for each in arguments.split()
    ]
    done = run("analyse", *filled)
    assert done.code == 1
    assert words in done.err
    assert "Traceback" not in done.err
    assert done.err.count("\n") == 1
    assert not (files / "out").exists()


def test_a_shipped_model_is_analyzed_by_its_name(run: Run, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("Der Hund schläft.\tThe dog is sleeping.\n")
    made = run("analyse", "traces", "de-en", "--test", pairs, "--out", tmp_path / "found", "--device", "cpu")
    assert made.code == 0, made.err
    assert "The dog is sleeping." in (tmp_path / "found" / "traces.csv").read_text()
