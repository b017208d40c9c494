"""The command that turns raw files into pairs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from noise2text.data.builders.dataset import PublishedSizes
from noise2text.data.builders.presplit import MULTI30K_NAMES
from noise2text.data.builders.registry import DATASETS

from .conftest import Outcome

SIZES = {"train": 29_000, "valid": 1_014, "test": 1_000}


def multi30k(folder: Path, *, whole: bool) -> Path:
    """The raw files, with as many lines as the published ones or with three."""
    folder.mkdir()
    for split, names in MULTI30K_NAMES.items():
        for name in names:
            lines = range(SIZES[split] if whole else 3)
            content = "".join(f"{name} {line}\n" for line in lines).encode()
            (folder / f"{name}.gz").write_bytes(gzip.compress(content, compresslevel=1))
    return folder


def test_a_dataset_with_the_right_sizes_is_said_to_have_them(
    run: Callable[..., Outcome], tmp_path: Path
) -> None:
    raw, out = multi30k(tmp_path / "raw", whole=True), tmp_path / "out"
    done = run("data", "multi30k", "--raw", raw, "--out", out, "--strict")
    assert done.code == 0, done.err
    assert "29,000 train, 1,014 valid, 1,000 test pairs" in done.out
    assert "the sizes are those of the dataset's own splits" in done.out
    assert "warning" not in done.err
    first = json.loads((out / "valid.jsonl").read_text().splitlines()[0])
    assert first == {"src": "val.de 0", "trg": "val.en 0"}


def test_other_sizes_are_a_warning_with_both_numbers(run: Callable[..., Outcome], tmp_path: Path) -> None:
    raw = multi30k(tmp_path / "raw", whole=False)
    done = run("data", "multi30k", "--raw", raw, "--out", tmp_path / "out", "--reverse")
    assert done.code == 0
    assert "warning: train has 3 pairs, not the 29,000 of the dataset's own splits." in done.err
    assert json.loads((tmp_path / "out" / "test.jsonl").read_text().splitlines()[0])["src"].endswith(".en 0")


def test_strict_fails_on_other_sizes_and_keeps_the_files(run: Callable[..., Outcome], tmp_path: Path) -> None:
    raw, out = multi30k(tmp_path / "raw", whole=False), tmp_path / "out"
    done = run("data", "multi30k", "--raw", raw, "--out", out, "--strict", "--json")
    assert done.code == 1
    assert f"No paper reports the split sizes of {out}" in done.err
    assert json.loads(done.out)["pairs"] == {"train": 3, "valid": 3, "test": 3}
    assert (out / "train.jsonl").exists()


def test_a_paper_that_differs_is_a_note_where_another_agrees(
    run: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = (PublishedSizes(3, 3, 3, "one paper"), PublishedSizes(4, 3, 3, "another"))
    monkeypatch.setitem(DATASETS, "multi30k", replace(DATASETS["multi30k"], sizes=sizes))
    raw = multi30k(tmp_path / "raw", whole=False)
    done = run("data", "multi30k", "--raw", raw, "--out", tmp_path / "out", "--strict")
    assert done.code == 0, done.err
    assert "the sizes are those of one paper" in done.out
    assert done.err == "note: train has 3 pairs, not the 4 of another.\n"


def test_what_was_left_out_is_counted_by_reason(run: Callable[..., Outcome], tmp_path: Path) -> None:
    raw = multi30k(tmp_path / "raw", whole=False)
    (raw / "train.de.gz").write_bytes(gzip.compress(b"eins\n\n \n"))
    done = run("data", "multi30k", "--raw", raw, "--out", tmp_path / "out")
    assert "left out: 2 (a side is empty)" in done.out


def test_a_terminal_shows_how_many_lines_were_read(
    run: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    raw = multi30k(tmp_path / "raw", whole=False)
    assert "9 lines" in run("data", "multi30k", "--raw", raw, "--out", tmp_path / "out").err


def test_list_shows_every_dataset_and_where_its_files_are(run: Callable[..., Outcome]) -> None:
    listed = run("data", "--list").out
    for name, dataset in DATASETS.items():
        assert f"{name}: {dataset.task}" in listed
        for file in dataset.files:
            assert file.name in listed
            assert file.url in listed
        for sizes in dataset.sizes:
            assert f"{sizes.train:,} / {sizes.valid:,} / {sizes.test:,} pairs ({sizes.reference})" in listed


def test_list_is_json_too_and_of_one_dataset_if_asked(run: Callable[..., Outcome]) -> None:
    records = json.loads(run("data", "--list", "--json").out)
    assert [record["name"] for record in records] == list(DATASETS)
    (record,) = json.loads(run("data", "qqp", "--list", "--json").out)
    assert record["files"][0]["name"] == "quora_duplicate_questions.tsv"
    assert record["sizes"][0]["train"] == 144_715
    assert record["licence"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["qpp", "--raw", "{raw}", "--out", "{out}"], "did you mean qqp?"),
        (["qqp", "--raw", "{raw}", "--out", "{out}"], "get it from http://qim.fs.quoracdn.net"),
        (["qqp", "--raw", "{raw}/typo", "--out", "{out}"], "There is no folder"),
        (["qqp", "--raw", "{raw}"], "--raw DIR and --out DIR"),
        ([], "noise2text data --list"),
    ],
)
def test_mistakes_are_one_sentence_and_write_nothing(
    run: Callable[..., Outcome], tmp_path: Path, arguments: list[str], message: str
) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    raw.mkdir()
    done = run("data", *(argument.format(raw=raw, out=out) for argument in arguments))
    assert done.code == 1
    assert message in done.err
    assert "Traceback" not in done.err
    assert not out.exists()


def test_raw_that_is_the_wrong_file_is_named(run: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "quora_duplicate_questions.tsv").write_text("<html>moved</html>\n")
    done = run("data", "qqp", "--raw", tmp_path, "--out", tmp_path / "out")
    assert done.code == 1
    assert "has no column 'question1'" in done.err


def test_the_texts_of_a_model_are_detokenized_in_its_target_language(
    run: Callable[..., Outcome], tmp_path: Path
) -> None:
    texts, out = tmp_path / "texts.txt", tmp_path / "plain.txt"
    texts.write_text("it &apos;s true , isn &apos;t it ?\n\nyes .\n")
    done = run("data", "iwslt14", "--detokenise", "--input", texts, "--output", out)
    assert done.code == 0, done.err
    assert done.out == f"{out}: 3 texts\n"
    assert out.read_text() == "it's true, isn't it?\n\nyes.\n"
    pairs = tmp_path / "test.jsonl"
    pairs.write_text('{"src": "ja .", "trg": "it &apos;s true ."}\n')
    assert run("data", "iwslt14", "--detokenise", "--input", pairs, "--output", out).code == 0
    assert out.read_text() == "it's true.\n", "references, too"
    named, where = ["iwslt14", "--detokenise", "--input", texts], ["--output", out]
    for wrong in (named, [*named[:1], *named[2:], *where], [*named[1:], *where], [*named[:2], *where]):
        assert "give NAME --detokenise --input FILE --output FILE" in run("data", *wrong).err
    done = run("data", "qqp", "--detokenise", "--input", texts, "--output", out)
    assert "qqp are not Moses tokens" in done.err
