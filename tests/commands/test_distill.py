"""A teacher's corpus: in order, the same however it was interrupted or shared out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noise2text import load
from noise2text.commands.display import SilentDisplay
from noise2text.commands.distill import DistillResult, distill
from noise2text.commands.train import train
from noise2text.core.errors import Problem, Stopped
from noise2text.data.corpus import read_pairs
from noise2text.data.token_store import TokenStore

from ..conftest import SMALL, small_changes
from ..teams import open_store, rank_environment

OVERRIDES: dict[str, Any] = {"beam": 2}


@pytest.fixture(scope="module")
def teacher(dates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Transformer of a few training steps, which writes something."""
    out = tmp_path_factory.mktemp("teachers") / "teacher"
    files: dict[str, Any] = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    changes = small_changes("transformer", {"optim.steps": 30})
    train("transformer", out=out, preset="tiny", changes=changes, device="cpu", **files)
    return out


@pytest.fixture(scope="module")
def corpus(dates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty sources; two of them say nothing."""
    path = tmp_path_factory.mktemp("corpora") / "corpus.jsonl"
    sources = [json.loads(line)["src"] for line in (dates / "train.jsonl").read_text().splitlines()[:40]]
    sources[5], sources[17] = "", "  "
    path.write_text("".join(json.dumps({"src": source, "trg": "any"}) + "\n" for source in sources))
    return path


@pytest.fixture(scope="module")
def expected(teacher: Path, corpus: Path) -> list[tuple[str, str]]:
    """What the teacher answers when it is asked directly."""
    sources = [json.loads(line)["src"] for line in corpus.read_text().splitlines()]
    texts = load(teacher, device="cpu").generate(sources, **OVERRIDES).texts
    pairs = zip(sources, texts, strict=True)
    return [(source, text) for source, text in pairs if source.strip() and text.strip()]


def pairs_of(path: Path) -> list[tuple[str, str]]:
    return [(pair.src, pair.trg) for pair in read_pairs(str(path))]


def test_the_corpus_holds_the_teachers_texts_in_the_order_of_the_input(
    teacher: Path, corpus: Path, expected: list[tuple[str, str]], tmp_path: Path
) -> None:
    output = tmp_path / "new" / "distilled.jsonl"
    done = distill(teacher, input=str(corpus), output=output, overrides=OVERRIDES, batch=4, device="cpu")
    assert pairs_of(output) == expected
    assert done == DistillResult(pairs=len(expected), left_out=40 - len(expected))
    assert len(expected) <= 38, "what training would refuse is left out"
    assert list(output.parent.iterdir()) == [output], "the parts are gone"


def test_training_takes_the_result(
    teacher: Path, corpus: Path, expected: list[tuple[str, str]], dates: Path, tmp_path: Path
) -> None:
    output = tmp_path / "distilled.jsonl"
    distill(teacher, input=str(corpus), output=output, overrides=OVERRIDES, device="cpu")
    student = train(
        "difformer",
        train=str(output),
        valid=str(dates / "valid.jsonl"),
        out=tmp_path / "student",
        preset="tiny",
        changes=SMALL | {"optim.steps": 1},
        device="cpu",
    )
    (store,) = (tmp_path / "student" / "data").glob("*train*")
    assert len(TokenStore.load(store, tokenizer=student.tokenizer)) == len(expected)


@pytest.mark.parametrize("form", ["txt", "tsv", "parallel"])
def test_every_form_of_corpus_is_read(
    teacher: Path, corpus: Path, expected: list[tuple[str, str]], tmp_path: Path, form: str
) -> None:
    sources = [json.loads(line)["src"] for line in corpus.read_text().splitlines()]
    plain, table = tmp_path / "c.de", tmp_path / "c.tsv"
    plain.write_text("".join(f"{source}\n" for source in sources))
    table.write_text("".join(f"{source}\tany\n" for source in sources))
    name = {"txt": str(plain), "tsv": str(table), "parallel": f"{plain},{corpus}"}[form]
    distill(teacher, input=name, output=tmp_path / "out.jsonl", overrides=OVERRIDES, device="cpu")
    assert pairs_of(tmp_path / "out.jsonl") == expected


class ProgressRecorder(SilentDisplay):
    """Remembers how far it was at each window."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def progress(self, step: int, summary: str) -> None:
        self.seen.append(step)


class Killed(Exception):
    """The process dies here."""


class DyingDisplay(SilentDisplay):
    """Ends the process after the first window."""

    def __init__(self, end: type[BaseException] = Killed) -> None:
        self.end = end

    def progress(self, step: int, summary: str) -> None:
        raise self.end


@pytest.mark.parametrize("torn", [b"", b'{"src": "hal', b'{"src": "x", "trg": "y"}'])
def test_a_run_that_was_killed_goes_on_where_it_stopped(
    teacher: Path,
    corpus: Path,
    expected: list[tuple[str, str]],
    tmp_path: Path,
    torn: bytes,
) -> None:
    output, part = tmp_path / "out.jsonl", tmp_path / "out.jsonl.part-0-of-1"
    order: dict[str, Any] = {"input": str(corpus), "output": output, "overrides": OVERRIDES, "device": "cpu"}
    with pytest.raises(Killed):
        distill(teacher, batch=1, display=DyingDisplay(), **order)
    assert not output.exists()
    written = part.read_bytes()
    assert written.count(b"\n") == 1 + 16, "what made it, and a window of sixteen batches"
    part.write_bytes(written + torn)

    display = ProgressRecorder()
    distill(teacher, batch=1, display=display, **order)
    assert pairs_of(output) == expected
    assert display.seen == [32, 40]


def test_ctrl_c_says_how_to_go_on(teacher: Path, corpus: Path, tmp_path: Path) -> None:
    display = DyingDisplay(KeyboardInterrupt)
    with pytest.raises(Stopped, match="run the same command"):
        distill(teacher, input=str(corpus), output=tmp_path / "out.jsonl", device="cpu", display=display)


def test_what_belongs_to_another_run_is_refused_and_kept(
    teacher: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.jsonl"
    order: dict[str, Any] = {"output": output, "batch": 1, "device": "cpu"}
    with pytest.raises(Killed):
        distill(teacher, input=str(corpus), overrides=OVERRIDES, display=DyingDisplay(), **order)
    part = output.with_name(f"{output.name}.part-0-of-1")
    kept = part.read_bytes()
    lines = corpus.read_text().splitlines(keepends=True)
    other, short = tmp_path / "other.jsonl", tmp_path / "short.jsonl"
    other.write_text("".join([*lines[:3], lines[4], lines[3], *lines[5:]]))
    short.write_text("".join(lines[:10]))
    for name, overrides, match in (
        (other, OVERRIDES, "line 5 does not belong to line 4 of the input"),
        (short, OVERRIDES, "line 12 does not belong to the end of the input"),
        (corpus, {"beam": 3}, r"started with another generation_config: .*beam=2.*beam=3"),
    ):
        with pytest.raises(Problem, match=match):
            distill(teacher, input=str(name), overrides=overrides, **order)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    bracketed = tmp_path / "[out].jsonl"
    bracketed.with_name(part.name.replace(output.name, bracketed.name)).write_bytes(kept)
    for other in (output, bracketed):
        with pytest.raises(Problem, match="started with 1 processes: continue with 1, not 2"):
            distill(teacher, input=str(corpus), output=other, overrides=OVERRIDES, device="cpu")
    assert part.read_bytes() == kept


def test_mistakes_are_named(teacher: Path, corpus: Path, tmp_path: Path) -> None:
    output, empty = tmp_path / "out.jsonl", tmp_path / "empty.txt"
    empty.write_text("")

    def problem(match: str, *, input: Path = corpus, **changes: Any) -> None:
        with pytest.raises(Problem, match=match):
            distill(teacher, input=str(input), output=output, device="cpu", **changes)

    problem("there is no setting 'beem'; did you mean beam", overrides={"beem": "3"})
    problem("no file", input=tmp_path / "nowhere.txt")
    problem("nothing to distil", input=empty)
    problem("at least 1 sentence", batch=0)
    for name in ("out.jsonl.gz", "out.tsv"):
        with pytest.raises(Problem, match=r"choose a file that ends in \.jsonl"):
            distill(teacher, input=str(corpus), output=tmp_path / name, device="cpu")
    assert not list(tmp_path.glob("*.part-*"))
    output.write_text("mine\n")
    problem("already exists")
    assert output.read_text() == "mine\n"


@pytest.mark.long
def test_two_processes_make_the_same_corpus_as_one(
    teacher: Path, corpus: Path, expected: list[tuple[str, str]], tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "noise2text", "distill", str(teacher), "--input", str(corpus)]
    command += ["--output", str(output), "--beam", "2", "--device", "cpu", "--batch", "1"]
    with open_store(2) as store_environment:
        processes = [
            subprocess.Popen(
                command,
                env=os.environ | store_environment | rank_environment(rank),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(2)
        ]
        said = [process.communicate(timeout=240)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert pairs_of(output) == expected
    assert f"{len(expected)} pairs" in said[0]
    assert not list(tmp_path.glob("*.part-*"))
