"""Files as people have them: tables, arrays, rows of the hub, and other encodings than UTF-8."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from noise2text.core.errors import Problem
from noise2text.data.corpus import (
    Pair,
    ReadCounts,
    read_labeled,
    read_pairs,
    read_references,
    read_sources,
    read_texts,
)
from noise2text.data.corpus_paths import make_absolute
from noise2text.data.text_files import MAX_LINE_BYTES

PAIRS = [Pair("ein Haus, klein", 'a "house"'), Pair("zwei\nZeilen", "two; lines")]
CSV = '{},{}\n"ein Haus, klein","a ""house"""\n"zwei\nZeilen",two; lines\n'
File = Callable[..., str]


@pytest.fixture
def file(tmp_path: Path) -> File:
    def write(name: str, content: str, encoding: str = "utf-8") -> str:
        (tmp_path / name).write_bytes(content.encode(encoding))
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize("header", ["src,trg", "source,target", "de,en", "German,English", "input,output"])
def test_a_header_names_the_columns_and_is_no_pair(file: File, header: str) -> None:
    assert list(read_pairs(file("c.csv", CSV.format(*header.split(","))))) == PAIRS
    assert list(read_sources(file("c.csv", CSV.format(*header.split(","))))) == [pair.src for pair in PAIRS]
    table = file("c.tsv", header.replace(",", "\t") + "\nein Haus\ta house\n")
    assert list(read_pairs(table)) == [Pair("ein Haus", "a house")]
    assert list(read_sources(table)) == ["ein Haus"]


def test_the_order_of_known_columns_does_not_matter(file: File) -> None:
    numbered = file("c.csv", "nr,de,en\n1,ein Haus,a house\n")
    assert list(read_pairs(numbered)) == [Pair("ein Haus", "a house")]
    table = file("c.csv", "id,target,source\n1,a house,ein Haus\n")
    assert list(read_pairs(table)) == [Pair("ein Haus", "a house")]
    assert list(read_references(table)) == [("a house",)]


def test_tsv_without_a_header_loses_no_line(file: File) -> None:
    assert list(read_pairs(file("c.tsv", "Hallo\thello\nja\tyes\n"))) == [
        Pair("Hallo", "hello"),
        Pair("ja", "yes"),
    ]


def test_semicolons_and_tabs_separate_the_cells_of_csv_too(file: File) -> None:
    for mark in (";", "\t"):
        table = file("c.csv", f"de{mark}en\nein Haus, klein{mark}a house\n")
        assert list(read_pairs(table)) == [Pair("ein Haus, klein", "a house")]


def test_fields_choose_the_columns(file: File) -> None:
    table = file("c.csv", "nr,fr,en,de\n1,une maison,a house,ein Haus\n")
    assert list(read_pairs(f"{table}[de,en]")) == [Pair("ein Haus", "a house")]
    assert list(read_pairs(f"{table}[en,fr]")) == [Pair("a house", "une maison")]
    assert list(read_sources(f"{table}[fr]")) == ["une maison"]
    assert read_texts(f"{table}[en]") == ["a house"]
    assert read_references(f"{table}[en]") == [("a house",)]
    with pytest.raises(Problem, match="has the columns nr, fr, en, de: name the source"):
        list(read_pairs(table))
    with pytest.raises(Problem, match=r"Pairs have two fields, .* names only de"):
        list(read_pairs(f"{table}[de]"))
    with pytest.raises(Problem, match="no column 'dee'; did you mean de"):
        list(read_pairs(f"{table}[dee,en]"))
    bare = file("bare.csv", "ein Haus,a house\n")
    with pytest.raises(Problem, match=r"'ein Haus', 'a house': .*--fields 1,2"):
        list(read_pairs(bare))
    assert list(read_pairs(f"{bare}[1,2]")) == [Pair("ein Haus", "a house")]
    with pytest.raises(Problem, match="columns 1 to 2, not 1,3"):
        list(read_pairs(f"{bare}[1,3]"))


def test_a_row_of_another_length_is_bad(file: File) -> None:
    table = file("c.csv", "de,en\na,b\nc\nd,e\nf,g\n")
    with pytest.raises(Problem, match="line 3: expected 2 columns, found 1"):
        list(read_pairs(table))
    counts = ReadCounts()
    assert len(list(read_pairs(table, skip_bad=True, counts=counts))) == 3
    assert counts.num_skipped == 1


@pytest.mark.parametrize("name", ["c.json", "c", "c.txt"])
def test_a_json_array_is_read_by_its_elements(file: File, name: str) -> None:
    rows = [{"src": "ein Haus", "trg": "a house"}, {"src": "zwei", "trg": "two"}]
    pairs = [Pair(row["src"], row["trg"]) for row in rows]
    for indent in (None, 2):
        array = file(name, json.dumps(rows, indent=indent))
        assert list(read_pairs(array)) == pairs
        assert list(read_sources(array)) == ["ein Haus", "zwei"]
        assert list(read_pairs(file(name, json.dumps([list(row.values()) for row in rows])))) == pairs
    assert list(read_sources(file(name, '["a", "b"]'))) == ["a", "b"]
    with pytest.raises(Problem, match="element 2: there is no field"):
        list(read_pairs(file(name, '[{"src": "a", "trg": "b"}, {"src": "c"}]')))
    with pytest.raises(Problem, match="not valid JSON"):
        list(read_pairs(file(name, '[{"src": "a", "trg": "b"}')))


def test_a_text_may_begin_with_a_bracket(file: File) -> None:
    assert list(read_sources(file("c.txt", "[Musik]\n[ 3 ]\n"))) == ["[Musik]", "[ 3 ]"]


@pytest.mark.parametrize("name", ["c.jsonl", "c.json", "c"])
def test_rows_of_the_hub_are_pairs(file: File, name: str) -> None:
    rows = [{"id": 0, "translation": {"de": "ein Haus", "en": "a house"}}]
    lines = file(name, "".join(json.dumps(row) + "\n" for row in rows))
    assert list(read_pairs(lines)) == [Pair("ein Haus", "a house")]
    assert list(read_pairs(f"{lines}[en,de]")) == [Pair("a house", "ein Haus")]
    assert list(read_sources(f"{lines}[en]")) == ["a house"]
    assert list(read_sources(lines)) == ["ein Haus"]
    with pytest.raises(Problem, match=r'no field "fr" .there is "de", "en"'):
        list(read_pairs(f"{lines}[de,fr]"))


def test_parquet_is_read_by_row(tmp_path: Path) -> None:
    path = str(tmp_path / "c.parquet")
    for rows in (
        [{"translation": {"de": "a", "en": "b"}}],
        [{"src": "a", "trg": "b"}],
        [{"de": "a", "en": "b"}],
    ):
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        assert list(read_pairs(path)) == [Pair("a", "b")]
        assert list(read_sources(path)) == ["a"]
    assert list(read_pairs(f"{path}[en,de]")) == [Pair("b", "a")]
    Path(path).write_bytes(b"no table")
    with pytest.raises(Problem, match="cannot be read as Parquet"):
        list(read_pairs(path))


def test_a_column_of_no_texts_is_named_with_its_row(tmp_path: Path) -> None:
    path = str(tmp_path / "c.parquet")
    for value in ({"a": {"b": ["c"]}}, [["a"]], 7, b"a", None, datetime.datetime(2000, 1, 1)):
        parquet.write_table(pyarrow.Table.from_pylist([{"src": value, "trg": "b"}]), path)
        with pytest.raises(Problem, match=r'c\.parquet, row 1: "src" is not a string'):
            list(read_pairs(path))


def test_a_small_file_of_a_long_text_many_times_takes_little_memory(tmp_path: Path) -> None:
    """As a dictionary of one text, 5,000 rows of it are a file of a few kilobytes, and 500 MB in memory."""
    path = str(tmp_path / "c.parquet")
    texts = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0] * 5_000, pyarrow.int32()), pyarrow.array(["x" * 100_000])
    )
    table = pyarrow.table({"src": texts, "trg": ["y"] * 5_000})
    parquet.write_table(table, path, compression="zstd", store_schema=False)
    assert Path(path).stat().st_size < 100_000
    before = pyarrow.total_allocated_bytes()
    for _ in islice(read_pairs(path), 300):
        assert pyarrow.total_allocated_bytes() - before < 100_000_000


def test_a_text_of_parquet_is_no_longer_than_a_line_may_be(tmp_path: Path) -> None:
    path = str(tmp_path / "c.parquet")
    rows = [{"src": "a", "trg": "b"}, {"src": "x" * (MAX_LINE_BYTES + 1), "trg": "b"}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    with pytest.raises(Problem, match=r'row 2: "src" is longer than 1,048,576 characters'):
        list(read_pairs(path))
    assert list(read_pairs(path, skip_bad=True)) == [Pair("a", "b")]


def test_a_zero_byte_is_part_of_a_text(file: File) -> None:
    assert list(read_pairs(file("c.csv", "src,trg\na\x00b,c\n"))) == [Pair("a\x00b", "c")]


def test_a_spreadsheet_is_refused_with_what_to_do(file: File) -> None:
    with pytest.raises(Problem, match="is a spreadsheet: save it as CSV"):
        list(read_pairs(file("c.xlsx", "")))


def test_labels_of_a_table(file: File) -> None:
    [labeled] = read_labeled(file("c.csv", "text,label\nein Haus,3\n"))
    assert (labeled.text, labeled.label) == ("ein Haus", "3")


TSV = "schöne Häuser\tnice houses\nzwei\u2028Öfen\ttwo ovens\n"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_decides_the_encoding(file: File, encoding: str) -> None:
    expected = [Pair("schöne Häuser", "nice houses"), Pair("zwei\u2028Öfen", "two ovens")]
    assert list(read_pairs(file("c.tsv", TSV, encoding))) == expected
    source, target = file("c.de", "schöne\nHäuser\n", encoding), file("c.en", "nice\nhouses\n", encoding)
    assert list(read_pairs(f"{source},{target}")) == [Pair("schöne", "nice"), Pair("Häuser", "houses")]


def test_the_mark_also_says_the_order_of_the_bytes(file: File) -> None:
    assert list(read_sources(file("c.txt", "\ufeffÖfen\n", "utf-16-be"))) == ["Öfen"]


def test_utf_16_without_a_mark_is_named(file: File) -> None:
    for encoding in ("utf-16-le", "utf-16-be"):
        for read in (lambda path: read_pairs(path, skip_bad=True), read_sources):
            with pytest.raises(Problem, match="looks like UTF-16 without a byte-order mark"):
                list(read(file("c.tsv", TSV, encoding)))


def test_latin_1_is_named_and_never_trained_on(file: File) -> None:
    lines = "".join(f"schöne Häuser {n}\tnice houses\n" if n % 2 else "a\tb\n" for n in range(100))
    path = file("c.tsv", lines, "latin-1")
    with pytest.raises(Problem, match=r"line 2: byte 4 .*Windows-1252 or Latin-1.*; convert the file"):
        list(read_pairs(path))
    with pytest.raises(Problem, match=r"50 of 100 rows of .*c.tsv are bad, .*Windows-1252.*iconv"):
        list(read_pairs(path, skip_bad=True))
    with pytest.raises(Problem, match=r"1 of 1 rows of .*Windows-1252.*iconv"):
        list(read_pairs(file("c.tsv", "schöne Häuser\tnice houses\n", "latin-1"), skip_bad=True))
    with pytest.raises(Problem, match="Windows-1252 or Latin-1"):
        list(read_sources(file("c.txt", "schöne Häuser\n", "latin-1")))


def test_a_binary_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(b"%PDF-1.4\x00\xe2 a\n")
    with pytest.raises(Problem, match=r"line 1: byte 10 .*looks like a binary file; name one of plain text"):
        list(read_sources(str(path)))


def test_a_corpus_of_mostly_bad_rows_is_refused(file: File) -> None:
    few = file("few.tsv", "a\tb\n" * 90 + "bad\n" * 10)
    assert len(list(read_pairs(few, skip_bad=True))) == 90
    many = file("many.tsv", "a\tb\n" * 80 + "bad\n" * 20)
    with pytest.raises(Problem, match=r"20 of 100 rows of .* too many to skip; the first is .*line 81"):
        list(read_pairs(many, skip_bad=True))
    with pytest.raises(Problem, match="3 of 5 rows"):
        list(read_pairs(file("most.tsv", "a\tb\n" * 2 + "bad\n" * 3), skip_bad=True))


def test_an_absolute_path_keeps_its_fields(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Path(file("c.csv", "nr,de,en\n1,ein Haus,a house\n"))
    monkeypatch.chdir(table.parent)
    assert make_absolute("c.csv[en,de]") == f"{table}[en,de]"
    assert make_absolute("c.csv") == str(table)
