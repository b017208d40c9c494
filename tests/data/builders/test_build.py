"""A built folder is complete or absent, and records what it was built from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from noise2text.core.errors import Problem
from noise2text.data.builders.build import build_dataset
from noise2text.data.builders.dataset import Dataset, DatasetRow, PublishedSizes, make_row, skip_row
from noise2text.data.builders.moses import MosesProcessor
from noise2text.data.builders.presplit import MULTI30K, MULTI30K_NAMES
from noise2text.data.builders.raw_files import RawFile, RawFiles
from noise2text.data.corpus import Pair, read_pairs

from .conftest import load_simple_moses, write_files


def rows(raw: RawFiles) -> Iterator[DatasetRow]:
    for place, text in enumerate(raw.read_texts("raw.txt")):
        if text == "bad":
            yield skip_row("it is bad", "train")
        else:
            yield make_row(("train", "valid", "test")[place % 3], text, text.upper())


LETTERS = Dataset(
    name="letters",
    task="upper case",
    papers=(),
    files=(RawFile("raw.txt", "https://example.org/raw.txt"),),
    sizes=(PublishedSizes(2, 1, 1, "a paper"), PublishedSizes(3, 1, 1, "another", before_cleaning=True)),
    license="none",
    processing_steps=("upper case",),
    read_rows=rows,
)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    write_files(tmp_path / "raw", {"raw.txt": "a\nb\nc\nd\nbad\n"})
    return tmp_path / "raw"


def test_the_splits_are_a_corpus_and_dataset_json_says_how_they_came(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    built = build_dataset(LETTERS, raw, out=out)
    assert sorted(path.name for path in out.iterdir()) == [
        "dataset.json",
        "test.jsonl",
        "train.jsonl",
        "valid.jsonl",
    ]
    assert list(read_pairs(str(out / "train.jsonl"))) == [Pair("a", "A"), Pair("d", "D")]
    about = json.loads((out / "dataset.json").read_text())
    assert about["pairs"] == built.pairs == {"train": 2, "valid": 1, "test": 1}
    assert about["left_out"] == {"it is bad": 1}
    assert about["sha256"] == {"raw.txt": hashlib.sha256(b"a\nb\nc\nd\nbad\n").hexdigest()}
    assert about["rules"] == ["upper case"]
    assert not about["reversed"]
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_sizes_are_compared_with_each_paper_before_or_after_cleaning(raw: Path, tmp_path: Path) -> None:
    built = build_dataset(LETTERS, raw, out=tmp_path / "out")
    assert built.matching_references == ["a paper", "another"]
    other = replace(built, dataset=replace(LETTERS, sizes=(PublishedSizes(1_000, 1, 1, "table 9"),)))
    assert other.matching_references == []
    assert other.size_mismatches(other.dataset.sizes[0]) == ["train has 2 pairs, not the 1,000 of table 9."]


def test_reversed_pairs_are_the_other_way_round(raw: Path, tmp_path: Path) -> None:
    build_dataset(LETTERS, raw, out=tmp_path / "out", reverse=True)
    assert list(read_pairs(str(tmp_path / "out" / "test.jsonl"))) == [Pair("C", "c")]


def test_nothing_stays_of_a_build_that_fails(raw: Path, tmp_path: Path) -> None:
    write_files(raw, {"raw.txt": "a\nb\nc\n" * 1_000 + "\n"})
    (raw / "raw.txt").write_bytes((raw / "raw.txt").read_bytes() + b"\xff\n")
    with pytest.raises(Problem, match="line 3002 is not valid UTF-8"):
        build_dataset(LETTERS, raw, out=tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_nothing_stays_of_a_build_that_is_interrupted(raw: Path, tmp_path: Path) -> None:
    def stop(lines: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_dataset(LETTERS, raw, out=tmp_path / "out", progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_an_empty_file_is_a_problem_and_writes_nothing(raw: Path, tmp_path: Path) -> None:
    write_files(raw, {"raw.txt": ""})
    with pytest.raises(Problem, match="letters contain no pairs for train"):
        build_dataset(LETTERS, raw, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_in_it_is_not_touched(raw: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "out", {"mine.txt": "mine"})
    with pytest.raises(Problem, match="already exists"):
        build_dataset(LETTERS, raw, out=tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]
    (tmp_path / "empty").mkdir()
    assert build_dataset(LETTERS, raw, out=tmp_path / "empty").pairs["train"] == 2


def test_a_link_is_followed_and_the_working_folder_refused(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far")
    build_dataset(LETTERS, raw, out=tmp_path / "link")
    assert (tmp_path / "far" / "train.jsonl").exists()
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(Problem, match="name one in it"):
        build_dataset(LETTERS, raw, out=Path())


def test_progress_counts_lines_and_ends_with_all_of_them(raw: Path, tmp_path: Path) -> None:
    write_files(raw, {"raw.txt": "a\nb\nc\n" * 800})
    counts: list[int] = []
    build_dataset(LETTERS, raw, out=tmp_path / "out", progress=counts.append)
    assert counts == [1_000, 2_000, 2_400]


def test_missing_rules_are_found_out_before_anything_is_read(raw: Path, tmp_path: Path) -> None:
    def none(language: str) -> MosesProcessor:
        raise Problem("no rules")

    def unread(raw: RawFiles) -> Iterator[DatasetRow]:
        raise AssertionError

    with pytest.raises(Problem, match="no rules"):
        build_dataset(
            replace(LETTERS, needs_moses=True, read_rows=unread), raw, out=tmp_path / "out", load_moses=none
        )
    assert build_dataset(
        replace(LETTERS, needs_moses=True), raw, out=tmp_path / "out", load_moses=load_simple_moses
    )


def test_rows_are_written_as_they_come(tmp_path: Path) -> None:
    """Splits are streamed: the first pairs are on disk long before the last are read."""
    seen: list[int] = []

    def many(raw: RawFiles) -> Iterator[DatasetRow]:
        for place in range(30_000):
            yield make_row(("train", "valid", "test")[place % 3], f"source {place}", f"target {place}")
        seen.extend(path.stat().st_size for path in tmp_path.glob(".out.draft/train.jsonl"))

    build_dataset(replace(LETTERS, files=(), read_rows=many), tmp_path, out=tmp_path / "out")
    assert seen
    assert seen[0] > 100_000


def test_a_published_dataset_goes_all_the_way(tmp_path: Path) -> None:
    files = {f"{name}.gz": f"{name} 1\n{name} 2\n" for both in MULTI30K_NAMES.values() for name in both}
    write_files(tmp_path / "raw", files)
    built = build_dataset(MULTI30K, tmp_path / "raw", out=tmp_path / "out")
    assert built.pairs == {"train": 2, "valid": 2, "test": 2}
    assert list(read_pairs(str(tmp_path / "out" / "valid.jsonl")))[1] == Pair("val.de 2", "val.en 2")
