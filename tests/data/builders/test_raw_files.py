"""Raw files are found in any folder of an archive, and every unreadable line is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from noise2text.core.errors import Problem
from noise2text.data.builders.raw_files import RawFile, find_files

from .conftest import Write, write_files

FILES = (RawFile("a.txt", "https://example.org/a.zip"), RawFile("b.txt", "https://example.org/b.tgz"))


def test_files_are_found_in_the_folder_and_below_it_and_compressed(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": "1\n", "archive/training/b.txt.gz": "2\n"})
    found = find_files(FILES, tmp_path)
    assert found == {"a.txt": tmp_path / "a.txt", "b.txt": tmp_path / "archive/training/b.txt.gz"}


def test_a_file_of_a_common_name_is_found_by_its_folder_or_lying_alone(tmp_path: Path) -> None:
    common = (RawFile("Giga/input.txt", "https://example.org"),)
    write_files(tmp_path, {"sumdata/Giga/input.txt.gz": "1\n", "sumdata/DUC2003/input.txt": "2\n"})
    assert find_files(common, tmp_path) == {"Giga/input.txt": tmp_path / "sumdata/Giga/input.txt.gz"}
    write_files(tmp_path, {"flat/input.txt": "1\n"})
    assert find_files(common, tmp_path / "flat") == {"Giga/input.txt": tmp_path / "flat/input.txt"}


def test_each_missing_file_is_a_sentence_with_its_address(tmp_path: Path) -> None:
    with pytest.raises(Problem) as problem:
        find_files(FILES, tmp_path)
    first, second = str(problem.value).splitlines()
    assert first == f"a.txt is not in {tmp_path}; get it from https://example.org/a.zip."
    assert "b.tgz" in second


def test_a_missing_folder_and_a_file_that_is_there_twice_are_problems(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="no folder"):
        find_files(FILES, tmp_path / "typo")
    write_files(tmp_path, {"a.txt": "1\n", "one/b.txt": "2\n", "two/b.txt": "2\n"})
    with pytest.raises(Problem, match="twice"):
        find_files(FILES, tmp_path)


def test_a_line_that_is_not_utf8_is_named(write: Write) -> None:
    raw = write({"a.txt": "gut\n"})
    raw.files["a.txt"].write_bytes(b"gut\n\xff\n")
    with pytest.raises(Problem, match=r"a\.txt, line 2 is not valid UTF-8"):
        list(raw.read_texts("a.txt"))


def test_files_that_are_not_parallel_are_a_problem(write: Write) -> None:
    raw = write({"a": "1\n2\n", "b.gz": "eins\n"})
    with pytest.raises(Problem, match="a and b are not parallel: one ends before line 2"):
        list(raw.read_parallel("a", "b"))


def test_a_table_is_read_by_the_names_of_its_columns(write: Write) -> None:
    raw = write({"t.tsv": 'id\tb\ta\n1\tone\t"two\nlines"\n2\tthree\t"a ""word"""\n'})
    assert list(raw.read_table("t.tsv", ("a", "b"), quoted=True)) == [
        ["two\nlines", "one"],
        ['a "word"', "three"],
    ]


def test_quotes_mean_nothing_in_a_table_that_has_none(write: Write) -> None:
    raw = write({"t.tsv": 'a\tb\n"So\t\\"Ja"\n'})
    assert list(raw.read_table("t.tsv", ("a", "b"), quoted=False)) == [['"So', '"Ja"']]


def test_a_table_without_the_column_or_with_a_short_row_is_a_problem(write: Write) -> None:
    raw = write({"t.tsv": "a\tb\n1\t2\n3\n", "empty.tsv": ""})
    with pytest.raises(Problem, match="has no column 'c'"):
        list(raw.read_table("t.tsv", ("a", "c"), quoted=True))
    with pytest.raises(Problem, match="line 3, has 1 columns of 2"):
        list(raw.read_table("t.tsv", ("a", "b"), quoted=True))
    with pytest.raises(Problem, match="has no column"):
        list(raw.read_table("empty.tsv", ("a",), quoted=True))


def test_a_line_that_is_not_json_is_named(write: Write) -> None:
    with pytest.raises(Problem, match=r"j\.txt, line 2 is not valid JSON"):
        list(write({"j.txt": "{}\n{\n"}).read_json("j.txt"))
