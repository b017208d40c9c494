"""A corpus by its files: absolute paths, pipes, and a fingerprint of the contents."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noise2text.data.corpus import Pair, read_pairs
from noise2text.data.corpus_paths import fingerprint_corpus, is_pipe, make_absolute, with_fields


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a.jsonl", "HERE/a.jsonl"),
        ("x/../a.de,b.en", "HERE/a.de,HERE/b.en"),
        ("c.csv[de,en]", "HERE/c.csv[de,en]"),
        ("-", "-"),
    ],
)
def test_absolute_paths_name_the_same_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert make_absolute(given) == expected.replace("HERE", str(tmp_path))
    assert make_absolute(make_absolute(given)) == make_absolute(given)


def test_a_folder_with_a_comma_in_its_name_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a,b").mkdir()
    monkeypatch.chdir(tmp_path / "a,b")
    assert make_absolute("c.de,c.en") == "c.de,c.en"


def test_the_fingerprint_depends_on_the_contents_alone(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b", "c")]
    for file, text in zip(files, ("x", "x", "y"), strict=True):
        file.write_text(text)
    same, other = fingerprint_corpus(str(files[0])), fingerprint_corpus(str(files[2]))
    assert same == fingerprint_corpus(str(files[1])) != other
    assert same is not None
    assert same["bytes"] == 1
    assert fingerprint_corpus(str(tmp_path / "missing")) is None


def test_pipes_are_told_from_files_and_folders(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").touch()
    assert is_pipe("-")
    assert is_pipe(str(tmp_path / "fifo"))
    assert is_pipe(f"{tmp_path / 'file'},{tmp_path / 'fifo'}")
    assert not any(is_pipe(str(path)) for path in (tmp_path, tmp_path / "file", tmp_path / "missing"))


def test_fields_are_named_for_a_file_whose_name_ends_in_brackets(tmp_path: Path) -> None:
    file = tmp_path / "part[1,2]"
    file.write_text('{"Deutsch": "a", "English": "b"}\n')
    named = with_fields(str(file), "Deutsch,English")
    assert list(read_pairs(named)) == [Pair("a", "b")]
    assert with_fields(named, "other,fields") == named
