"""An output has one writer, a pipe is read once, and what a killed command leaves is used or removed."""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from noise2text.cli.page import page as write_page
from noise2text.commands.compare import CompareOptions, compare
from noise2text.commands.demo import demo
from noise2text.commands.distill import distill
from noise2text.commands.export import export
from noise2text.commands.input_texts import arriving_windows, growing_windows
from noise2text.commands.prepare import prepare
from noise2text.commands.run_data import learn_bpe_from_sample, sample_texts
from noise2text.commands.train import train
from noise2text.commands.train_classifier import train_classifier
from noise2text.core.errors import Problem
from noise2text.core.locks import lock_folder, lock_output
from noise2text.data.builders.build import build_dataset
from noise2text.data.builders.dataset import Dataset
from noise2text.data.chunks import MAX_CHUNK_CHARACTERS
from noise2text.data.corpus import Pair, read_pairs, write_pairs
from noise2text.data.dates import write_dates, write_days
from noise2text.data.tokenizer import Tokenizer, learn_bpe
from noise2text.models.convert import convert_folder
from noise2text.models.import_difformer import import_difformer
from noise2text.models.import_diffuseq import import_diffuseq
from noise2text.models.registry import find_recipe
from noise2text.report.report import report

from ..conftest import SMALL

CHANGES = SMALL | {"optim.steps": 2}
CHARACTERS = {"tokenizer": "characters"}


class Killed(BaseException):
    """The process dies here."""


@pytest.fixture(scope="module")
def model(dates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "model"
    files: dict[str, Any] = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    train("difformer", out=out, preset="tiny", changes=CHANGES, device="cpu", **files)
    return out


@pytest.fixture
def pipe(tmp_path: Path) -> Callable[[Path], str]:
    """A function that makes a FIFO through which a file can be read once; then it is empty."""

    def make(file: Path) -> str:
        fifo = tmp_path / f"{len(list(tmp_path.glob('*.fifo')))}.fifo"
        os.mkfifo(fifo)

        def write() -> None:
            contents = file.read_bytes()
            with suppress(OSError):
                while True:
                    with open(os.open(fifo, os.O_WRONLY), "wb") as opened:
                        opened.write(contents)
                    contents = b""
                    time.sleep(0.01)

        threading.Thread(target=write, daemon=True).start()
        return str(fifo)

    return make


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def prepare_dates(dates: Path, out: Path, **changed: Any) -> None:
    files: dict[str, Any] = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    options: dict[str, Any] = {"changes": CHARACTERS, "show_line": lambda line: None} | changed
    prepare(**files, out=out, **options)


# A pipe is read once


def test_training_on_a_pipe_equals_training_on_its_file(
    dates: Path, model: Path, tmp_path: Path, pipe: Callable[[Path], str]
) -> None:
    files: dict[str, Any] = {name: pipe(dates / f"{name}.jsonl") for name in ("train", "valid")}
    train("difformer", out=tmp_path / "run", preset="tiny", changes=CHANGES, device="cpu", **files)
    assert (tmp_path / "run/model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()


def test_distilling_a_pipe_equals_distilling_its_file(
    dates: Path, model: Path, tmp_path: Path, pipe: Callable[[Path], str]
) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join((dates / "test.jsonl").read_text().splitlines(keepends=True)[:5]))
    found = []
    for number, input in enumerate((str(few), pipe(few))):
        output = tmp_path / f"{number}.jsonl"
        distill(model, input=input, output=output, overrides={"steps": 2, "stop_early": 0}, device="cpu")
        found.append(output.read_bytes())
    assert found[0] == found[1]
    assert found[0]


def test_bad_lines_of_a_pipe_are_skipped_if_that_is_asked_for(
    dates: Path, tmp_path: Path, pipe: Callable[[Path], str]
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text((dates / "train.jsonl").read_text() + "no pair\n")
    out, valid = tmp_path / "out", str(dates / "valid.jsonl")
    with pytest.raises(Problem, match="pass --skip-bad"):
        prepare(pipe(bad), valid, out=out, changes=CHARACTERS, show_line=lambda line: None)
    assert not out.exists()
    data = prepare(pipe(bad), valid, out=out, changes=CHARACTERS, skip_bad=True, show_line=lambda line: None)
    assert len(data.train) == 200


def test_bpe_is_learned_from_all_texts_or_from_a_fair_sample() -> None:
    texts = [str(number) for number in range(1_000)]
    assert sample_texts(iter(texts), limit=1_000) == texts
    sample = sample_texts(iter(texts), limit=100)
    assert len(set(sample)) == 100
    assert 400 < statistics.mean(map(int, sample)) < 600  # four standard errors are 115
    assert sample == sample_texts(iter(texts), limit=100)


def test_a_large_corpus_is_sampled_before_bpe_is_learned(dates: Path) -> None:
    texts = [text for pair in read_pairs(str(dates / "train.jsonl")) for text in (pair.src, pair.trg)]
    config = find_recipe("difformer").preset("tiny").replace(tokenizer="bpe", vocabulary=300)
    whole, some = learn_bpe(texts, size=300), learn_bpe(sample_texts(texts, limit=30), size=300)
    assert learn_bpe_from_sample(texts, config).encode(texts) == whole.encode(texts)
    assert learn_bpe_from_sample(texts, config, max_texts=30).encode(texts) == some.encode(texts)
    assert whole.encode(texts) != some.encode(texts)


def test_the_texts_that_bpe_is_learned_from_have_a_bounded_size() -> None:
    """A million long texts would not fit into memory."""
    texts = [f"{number:03} {'x' * 96}" for number in range(1_000)]
    assert sample_texts(texts, limit=1_000, max_characters=100_000) == texts
    for most in (99_999, 10_000, 1_000):
        sample = sample_texts(texts, limit=500, max_characters=most)
        assert most / 4 < sum(map(len, sample)) <= most
    numbers = [int(text[:3]) for text in sample_texts(texts, limit=500, max_characters=20_000)]
    assert len(set(numbers)) == len(numbers) > 50
    assert 350 < statistics.mean(numbers) < 650  # four standard errors are 150 or less


def test_what_is_tokenized_together_has_a_bounded_size() -> None:
    """Tokenizing takes some 150 bytes per character; a window of long texts took gigabytes."""
    long, short = "x" * (MAX_CHUNK_CHARACTERS // 2), "x" * 100
    assert list(map(len, growing_windows([long] * 5, 100))) == [2, 2, 1]
    assert list(map(len, growing_windows([short] * 700, 100))) == [100, 200, 400]
    assert list(map(len, growing_windows([long * 3] * 3, 100))) == [1, 1, 1]
    assert max(map(len, arriving_windows([long] * 5, 100))) <= 2
    assert [text for window in arriving_windows([short] * 700, 100) for text in window] == [short] * 700


@pytest.mark.parametrize("command", ["prepare", "distill", "compare"])
def test_a_command_tokenizes_a_bounded_size_together(
    command: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each text has half of what a group may have, so that a group has two of the five."""
    together: list[int] = []
    encode = Tokenizer.encode

    def encode_beginnings(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        together.append(sum(map(len, texts)))
        return encode(tokenizer, [text[:10] for text in texts])

    corpus = tmp_path / "long.jsonl"
    text = "7 april 1957".ljust(MAX_CHUNK_CHARACTERS // 2 - 100)
    write_pairs(corpus, [Pair(text, "1957-04-07")] * 5)
    run: dict[str, Callable[[], Any]] = {
        "prepare": lambda: prepare(
            str(corpus), str(corpus), out=tmp_path / "out", changes=CHARACTERS, show_line=lambda line: None
        ),
        "distill": lambda: distill(
            model, input=str(corpus), output=tmp_path / "out.jsonl", overrides={"steps": 2}, device="cpu"
        ),
        "compare": lambda: compare(
            [model], test=str(corpus), out=tmp_path / "out", options=CompareOptions(device="cpu")
        ),
    }
    monkeypatch.setattr(Tokenizer, "encode", encode_beginnings)
    run[command]()
    assert len(text) <= max(together) <= MAX_CHUNK_CHARACTERS + len(text)


# Two at once are refused before any work


def test_two_commands_for_one_output_are_refused_by_its_name(
    dates: Path, model: Path, tmp_path: Path
) -> None:
    """Each command is refused for the sake of the lock alone: its other arguments are right."""
    out, test = tmp_path / "out", str(dates / "test.jsonl")
    locked_folder: dict[str, Callable[[], Any]] = {
        "prepare": lambda: prepare_dates(dates, out),
        "synth": lambda: write_dates(out, pairs=10, seed=0),
        "compare": lambda: compare([model], test=test, out=out),
    }
    with lock_folder(out):
        for command in locked_folder.values():
            with pytest.raises(Problem, match=f"Another process is using {out}"):
                command()
    page = tmp_path / "report.html"
    locked_output: dict[Path, Callable[[], Any]] = {
        page: lambda: report([model], out=page),
        out: lambda: train_classifier(model, train=test, valid=test, out=out),
        tmp_path / "exported": lambda: export(model, tmp_path / "exported"),
        tmp_path / "demo": lambda: demo(tmp_path / "demo", changes={"optim.steps": 1}),
        tmp_path / "new": lambda: convert_folder(model, tmp_path / "new"),
        tmp_path / "diffuseq": lambda: import_diffuseq(model, tmp_path / "diffuseq"),
        tmp_path / "difformer": lambda: import_difformer(model, tmp_path / "difformer"),
        tmp_path / "page.html": lambda: write_page([model], tmp_path / "page.html", text=["7 april"]),
        tmp_path / "data": lambda: build_dataset(
            Dataset("none", "", (), (), (), "", (), lambda raw: iter(())), tmp_path, out=tmp_path / "data"
        ),
    }
    for output, command in locked_output.items():
        with lock_output(output), pytest.raises(Problem, match=f"Another process is using {output}"):
            command()
    assert not any(tmp_path.iterdir())


def test_a_second_distill_is_refused_at_once(dates: Path, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    arguments: dict[str, Any] = {"input": str(dates / "test.jsonl"), "output": output, "device": "cpu"}

    class Second:
        """Starts the same distillation during the first."""

        def start(self, total: int) -> None:
            with pytest.raises(Problem, match=f"Another process is using {output}"):
                distill(model, **arguments)
            raise Killed

        def progress(self, step: int, summary: str) -> None: ...

        def show_line(self, line: str) -> None: ...

    with pytest.raises(Killed):
        distill(model, display=Second(), **arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl.part-0-of-1"]


# What a killed command leaves


@pytest.mark.parametrize("lines", [1, 2, 3])
def test_a_killed_prepare_is_finished_by_its_own_command(dates: Path, tmp_path: Path, lines: int) -> None:
    """It is killed after the tokenizer, after the training pairs and after the validation pairs."""
    whole, out, said = tmp_path / "whole", tmp_path / "out", list[str]()
    prepare_dates(dates, whole)

    def die(line: str) -> None:
        said.append(line)
        if len(said) == lines:
            raise Killed

    with pytest.raises(Killed):
        prepare_dates(dates, out, show_line=die)
    before = contents(out)
    with pytest.raises(Problem, match="unfinished preparation of another corpus or with other settings"):
        prepare_dates(dates, out, changes=CHARACTERS | {"lowercase": True})
    assert contents(out) == before
    prepare_dates(dates, out)
    assert contents(out) == contents(whole)


def test_a_refused_prepare_leaves_nothing(dates: Path, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="There is no file"):
        prepare(
            str(dates / "train.jsonl"), "missing.jsonl", out=tmp_path / "out", show_line=lambda line: None
        )
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("write", [write_dates, write_days])
def test_the_draft_of_a_killed_synth_is_removed(write: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "synth.draft").mkdir()
    (tmp_path / "synth.draft" / "train.jsonl").write_text("half")
    write(tmp_path, pairs=10, seed=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test.jsonl", "train.jsonl", "valid.jsonl"]


def test_the_parts_of_a_distill_that_was_killed_after_merging_are_removed(
    model: Path, dates: Path, tmp_path: Path
) -> None:
    output, part = tmp_path / "out.jsonl", tmp_path / "out.jsonl.part-0-of-1"
    part.write_text("merged")
    output.write_text(json.dumps({"src": "a", "trg": "b"}) + "\n")
    with pytest.raises(Problem, match="already exists"):
        distill(model, input=str(dates / "test.jsonl"), output=output, device="cpu")
    assert not part.exists()
    assert len(list(read_pairs(str(output)))) == 1


def test_a_killed_train_classifier_is_started_again_by_its_own_command(model: Path, tmp_path: Path) -> None:
    write_days(tmp_path / "days", pairs=300, seed=0)
    files: dict[str, Any] = {
        "train": str(tmp_path / "days/train.jsonl"),
        "valid": str(tmp_path / "days/valid.jsonl"),
    }
    out, draft = tmp_path / "classifier", tmp_path / ".classifier.draft"
    draft.mkdir()
    (draft / "config.json").write_text("half")
    train_classifier(model, out=out, changes={"steps": 2}, device="cpu", **files)
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors"]
    assert not draft.exists()
