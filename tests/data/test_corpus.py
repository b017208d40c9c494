"""A corpus is read line by line, exactly, and every error names its line."""

import codecs
import gzip
import io
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noise2text.core.errors import Problem
from noise2text.data.corpus import (
    Pair,
    ReadCounts,
    read_candidates,
    read_pairs,
    read_references,
    read_sources,
    read_texts,
    write_pairs,
)
from noise2text.data.text_files import MAX_LINE_BYTES

PAIRS = [
    Pair("ein Haus", "a house"),
    Pair("zwei", "two", ("a pair", "2")),
    Pair("naïve\u2028x", "y\x0b\x85z"),
]
JSONL = "".join(
    json.dumps({"src": p.src, "trg": p.trg, "refs": list(p.refs)}, ensure_ascii=False) + "\n" for p in PAIRS
)
TSV = "".join(f"{p.src}\t{p.trg}\n" for p in PAIRS)
BARE = [Pair(p.src, p.trg) for p in PAIRS]

File = Callable[[str, str | bytes], str]


@pytest.fixture
def file(tmp_path: Path) -> File:
    """Writes a file, compressed if its name says so, and gives its path."""

    def write(name: str, content: str | bytes) -> str:
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(tmp_path / name)

    return write


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.mark.parametrize(
    "name", ["c.jsonl", "c.JSONL", "c.jsonl.gz", "c.ndjson", "c.data", "c", "c.gz", "a,b.jsonl"]
)
def test_json_lines_give_their_pairs_and_references(file: File, name: str) -> None:
    assert list(read_pairs(file(name, JSONL))) == PAIRS


@pytest.mark.parametrize("name", ["c.tsv", "c.tsv.gz", "c.txt", "c"])
@pytest.mark.parametrize("change", [("\n", "\n"), ("\n", "\r\n"), ("ein Haus", "\ufeffein Haus")])
def test_tsv_gives_its_pairs_with_either_line_end_and_without_a_mark(
    file: File, name: str, change: tuple[str, str]
) -> None:
    assert list(read_pairs(file(name, TSV.replace(*change)))) == BARE


def test_the_last_line_need_not_end(file: File) -> None:
    assert list(read_pairs(file("c.tsv", "a\tb\nc\td"))) == [Pair("a", "b"), Pair("c", "d")]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_two_files_are_joined_line_by_line(file: File, ending: str) -> None:
    source = file(f"c.de{ending}", "\ufeff" + "".join(p.src + "\n" for p in PAIRS))
    target = file("c.en", "".join(p.trg + "\r\n" for p in PAIRS))
    assert list(read_pairs(f"{source},{target}")) == BARE


@pytest.mark.parametrize("longer", ["source", "target"])
def test_files_of_different_length_are_refused_with_both_counts(file: File, longer: str) -> None:
    counts = {"source": 2, "target": 2, longer: 5}
    source, target = file("c.de", "a\n" * counts["source"]), file("c.en", "b\n" * counts["target"])
    with pytest.raises(Problem, match=r"has 5 lines but .* has 2;"):
        list(read_pairs(f"{source},{target}", skip_bad=True))


@pytest.mark.parametrize("data, pairs", [(JSONL, PAIRS), ("\ufeff" + JSONL, PAIRS), (TSV, BARE)])
def test_the_format_of_standard_input_is_detected_by_its_first_line(
    monkeypatch: pytest.MonkeyPatch, data: str, pairs: list[Pair]
) -> None:
    feed(monkeypatch, data.encode())
    assert list(read_pairs("-")) == pairs


BAD = {
    "invalid UTF-8": (".jsonl", b'{"src": "\xff", "trg": "b"}', "not valid UTF-8"),
    "invalid UTF-8 in TSV": (".tsv", b"a\xc3\tb", "not valid UTF-8"),
    "no source": (".jsonl", b'{"trg": "b"}', 'no field "src"'),
    "no target": (
        ".jsonl",
        b'{"src": "b", "target": "c"}',
        r'no field "trg" \(there is "src", "target": choose with --fields\)',
    ),
    "not JSON": (".jsonl", b'{"src": "a", "trg": "b"', r"not valid JSON \(write one object per line\)"),
    "deep": (".jsonl", b"[" * 100_000, "not valid JSON"),
    "large number": (".jsonl", b"9" * 5000, "not valid JSON"),
    "an array": (".jsonl", b'["a", "b"]', "not a JSON object"),
    "a string": (".jsonl", b'"a"', 'no field "src"'),
    "an empty line": (".jsonl", b"", "the line is empty"),
    "a number": (".jsonl", b'{"src": 3, "trg": "b"}', '"src" is not a string'),
    "null": (".jsonl", b'{"src": "a", "trg": null}', '"trg" is not a string'),
    "half a pair": (".jsonl", rb'{"src": "\ud800", "trg": "b"}', "surrogate"),
    "an empty source": (".jsonl", b'{"src": "", "trg": "b"}', "the source is empty"),
    "a blank target": (".jsonl", rb'{"src": "a", "trg": " \u2003\n"}', "the target is empty"),
    "references of text": (".jsonl", b'{"src": "a", "trg": "b", "refs": "c"}', '"refs" is not a list'),
    "references of numbers": (".jsonl", b'{"src": "a", "trg": "b", "refs": [1]}', '"refs" is not a string'),
    "no tab": (".tsv", b"a b", "found 0"),
    "two tabs": (".tsv", b"a\tb\tc", "found 2"),
    "empty TSV source": (".tsv", b"\tb", "the source is empty"),
    "blank TSV target": (".tsv", b"a\t ", "the target is empty"),
    "empty TSV line": (".tsv", b"", "found 0"),
}


@pytest.mark.parametrize("suffix, line, reason", BAD.values(), ids=BAD.keys())
def test_a_bad_line_is_an_error_with_its_location_or_is_counted(
    file: File, suffix: str, line: bytes, reason: str
) -> None:
    good = b'{"src": "a", "trg": "b"}' if suffix == ".jsonl" else b"a\tb"
    path = file("c" + suffix, b"\n".join([good, line, good]) + b"\n")
    with pytest.raises(Problem, match=rf"c{suffix}, line 2: .*{reason}.*--skip-bad") as caught:
        list(read_pairs(path))
    assert "\n" not in str(caught.value)
    counts = ReadCounts()
    assert list(read_pairs(path, skip_bad=True, counts=counts)) == [Pair("a", "b")] * 2
    assert counts == ReadCounts(num_pairs=2, num_skipped=1)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("line", [b"\xff", b"", b" "])
def test_a_bad_line_of_two_files_names_the_file(file: File, side: int, line: bytes) -> None:
    texts = [b"a\nb\nc\n", b"a\nb\nc\n"]
    texts[side] = b"a\n" + line + b"\nc\n"
    path = ",".join(file(name, text) for name, text in zip(["c.de", "c.en"], texts, strict=True))
    with pytest.raises(Problem, match=rf"{['c.de', 'c.en'][side]}, line 2"):
        list(read_pairs(path))
    counts = ReadCounts()
    assert len(list(read_pairs(path, skip_bad=True, counts=counts))) == 2
    assert counts.num_skipped == 1


def test_a_missing_file_or_a_folder_is_refused_before_reading(tmp_path: Path, file: File) -> None:
    here = file("c.de", "a\n")
    for path in (f"{tmp_path}/no.tsv", f"{here},{tmp_path}/no", f"{tmp_path}/no,{here}"):
        with pytest.raises(Problem, match="There is no file"):
            read_pairs(path)
    with pytest.raises(Problem, match="is a folder"):
        read_pairs(str(tmp_path))
    for path in ("a,b,c", f"{here},", f"-,{here}"):
        with pytest.raises(Problem, match="SOURCE,TARGET"):
            read_pairs(path)
    for read in (read_sources, read_texts, read_references):
        with pytest.raises(Problem, match="There is no file"):
            read(f"{tmp_path}/no.txt")


@pytest.mark.parametrize("name", ["c.jsonl", "c.tsv.gz", "c"])
def test_a_corpus_without_pairs_is_refused(file: File, name: str) -> None:
    with pytest.raises(Problem, match="has no pairs"):
        list(read_pairs(file(name, "")))
    with pytest.raises(Problem, match="has no pairs"):
        list(read_pairs(file(name, "\n\n"), skip_bad=True))


@pytest.mark.parametrize("name", ["c.tsv.gz", "c.jsonl.gz"])
def test_a_damaged_archive_is_refused(file: File, tmp_path: Path, name: str) -> None:
    path = Path(file(name, "".join(f"{i * i}\t{i}\n" for i in range(20_000))))
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"a\tb\n", whole[:40] + b"damage" * 9 + whole[94:]):
        path.write_bytes(damaged)
        with pytest.raises(Problem, match="cannot be read"):
            list(read_pairs(str(path), skip_bad=True))


def test_reading_is_lazy(file: File) -> None:
    counts = ReadCounts()
    pairs = read_pairs(file("c.tsv", "a\tb\nc\td\nbad\n"), counts=counts)
    assert next(pairs) == Pair("a", "b")
    assert counts.num_pairs == 1


def test_a_pipe_is_a_corpus(tmp_path: Path) -> None:
    command = (
        "import sys; from noise2text.data.corpus import read_pairs; print(list(read_pairs('/dev/stdin')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", command], input=JSONL.encode(), capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == repr(PAIRS)


def test_sources_keep_every_line(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(read_sources(file("c.txt", "\ufeffa\tb\n\n{x}\u2028\r\n"))) == ["a\tb", "", "{x}\u2028"]
    assert list(read_sources(file("c.jsonl.gz", '{"src": "a"}\n\n{"text": "b"}\n"c"\n'))) == [
        "a",
        "",
        "b",
        "c",
    ]
    assert list(read_sources(file("c.tsv", "a\tb\n"))) == ["a"]
    assert list(read_sources(file("empty.txt", ""))) == []
    feed(monkeypatch, b"x\n\n{y\n")
    assert list(read_sources("-")) == ["x", "", "{y"]


def test_unreadable_sources_are_named_by_line(file: File) -> None:
    with pytest.raises(Problem, match="line 2: byte 1 of the line is not valid UTF-8"):
        list(read_sources(file("c.txt", b"a\n\xff\n")))
    with pytest.raises(Problem, match='line 1: there is no field "src" or "text"'):
        list(read_sources(file("c.jsonl", '{"question": "a"}\n')))


def test_known_names_of_fields_are_read_in_objects_as_in_tables(file: File) -> None:
    assert list(read_sources(file("s.jsonl", '{"source": "a"}\n'))) == ["a"]
    assert list(read_pairs(file("p.jsonl", '{"id": 1, "de": "a", "en": "b"}\n'))) == [Pair("a", "b")]
    assert list(read_pairs(file("q.jsonl", '{"input": "a", "output": "b"}\n'))) == [Pair("a", "b")]
    with pytest.raises(Problem, match="choose with --fields"):
        list(read_pairs(file("three.jsonl", '{"de": "a", "en": "b", "fr": "c"}\n')))


def test_texts_to_evaluate(file: File) -> None:
    assert read_texts(file("h.txt", "a\n\nb c\n")) == ["a", "", "b c"]
    lines = (
        '"a"\n{"hyp": "b", "text": "x", "trg": "y"}\n{"text": "c", "trg": "y"}\n{"trg": "d"}\n{"hyp": ""}\n'
    )
    assert read_texts(file("h.jsonl", lines)) == ["a", "b", "c", "d", ""]
    with pytest.raises(Problem, match="has no lines"):
        read_texts(file("empty.txt", ""))


def test_candidates_are_strings_or_objects_with_text(file: File) -> None:
    lines = '{"text": "a", "candidates": ["a", "b"]}\n{"candidates": [{"text": "c", "score": -1.5}, "d"]}\n'
    assert read_candidates(file("c.jsonl", lines)) == [["a", "b"], ["c", "d"]]
    assert read_candidates(file("none.jsonl", '{"text": "a"}\n"b"\n')) is None
    assert read_candidates(file("h.txt", "a\nb\n")) is None


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"candidates": ["a"]}\n{"text": "b"}\n', "line 2: this line has no candidates"),
        ('{"candidates": "a"}\n', 'line 1: "candidates" is not a list'),
        ('{"candidates": ["a", 1]}\n', 'line 1: "candidates" is not a string'),
        ('{"candidates": [{"score": 1}]}\n', 'line 1: "candidates" is not a string'),
    ],
)
def test_unreadable_candidates_are_named_by_line(file: File, lines: str, message: str) -> None:
    with pytest.raises(Problem, match=message):
        read_candidates(file("c.jsonl", lines))


def test_references_begin_with_the_target_unless_it_is_among_them(file: File) -> None:
    lines = [
        '{"trg": "a"}',
        '{"trg": "a", "refs": ["b", "c"]}',
        '{"trg": "a", "refs": ["b", "a"]}',
        '{"refs": ["b"]}',
        '{"trg": "a", "refs": []}',
        '{"text": "a"}',
        '"a"',
    ]
    expected = [("a",), ("a", "b", "c"), ("b", "a"), ("b",), ("a",), ("a",), ("a",)]
    assert read_references(file("r.jsonl", "\n".join(lines))) == expected
    assert read_references(file("r.txt", "a\n\nb\n")) == [("a",), ("",), ("b",)]
    assert read_references(file("r.tsv", "a\tb\n")) == [("b",)]
    with pytest.raises(Problem, match="line 1"):
        read_references(file("r.jsonl", '{"src": "a"}'))


texts = st.text(min_size=1).filter(lambda text: bool(text.strip()))


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.builds(Pair, texts, texts, st.lists(st.text()).map(tuple)), min_size=1))
def test_what_is_written_is_read(tmp_path: Path, pairs: list[Pair]) -> None:
    write_pairs(tmp_path / "c.jsonl", pairs)
    assert list(read_pairs(str(tmp_path / "c.jsonl"))) == pairs


def test_reading_needs_no_torch() -> None:
    command = "import sys, noise2text.data.corpus; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", command], check=True)


def test_json_lines_of_another_name_are_not_taken_for_texts(tmp_path: Path) -> None:
    """A part of a corpus, such as `split` makes, keeps its meaning; a text that begins with { stays one."""
    part = tmp_path / "part.00"
    part.write_text('{"src": "a", "trg": "b"}\n{"src": "c", "trg": "d"}\n')
    assert list(read_sources(str(part))) == ["a", "c"]
    part.write_text('{"hyp": "a"}\n{"hyp": "b"}\n')
    assert read_texts(str(part)) == ["a", "b"]
    part.write_text('{"refs": ["a", "b"]}\n{"refs": ["c"]}\n')
    assert read_references(str(part)) == [("a", "b"), ("c",)]
    part.write_text('{"candidates": ["a", "b"]}\n')
    assert read_candidates(str(part)) == [["a", "b"]]
    part.write_text("{curly} brackets\nplain\n")
    assert list(read_sources(str(part))) == ["{curly} brackets", "plain"]


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_line_that_is_too_long_is_refused_or_skipped_in_bounded_memory(
    tmp_path: Path, start: bytes, end: bytes
) -> None:
    """Of sixty-four megabytes without a line break, a few are in memory at a time."""
    good, pair = b"a\tb\n", b"a\t" + b"b" * (MAX_LINE_BYTES - 2)
    file = tmp_path / "long.tsv"
    file.write_bytes(start + pair + b"\r\n" + good)
    assert [len(pair.trg) for pair in read_pairs(str(file))] == [MAX_LINE_BYTES - 2, 1]
    file.write_bytes(start + b"x" * (64 * MAX_LINE_BYTES - 1) + b"\r" + end + (good if end else b""))
    tracemalloc.start()
    with pytest.raises(Problem, match=r"line 1: the line is longer than 1,048,576 bytes; split it"):
        list(read_pairs(str(file)))
    if end:
        assert [pair.src for pair in read_pairs(str(file), skip_bad=True)] == ["a"]
    assert tracemalloc.get_traced_memory()[1] < 8 * MAX_LINE_BYTES
    tracemalloc.stop()


@pytest.mark.parametrize(
    "mark, encoding",
    [
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
    ],
)
def test_a_long_line_of_utf_16_is_refused_or_skipped_in_bounded_memory(
    tmp_path: Path, mark: bytes, encoding: str
) -> None:
    """It was read into memory whole before it was refused."""
    file, piece = tmp_path / "long.tsv", ("ü" * MAX_LINE_BYTES).encode(encoding)
    with file.open("wb") as opened:
        opened.write(mark + "a\tb\n".encode(encoding))
        for _ in range(24):
            opened.write(piece)
        opened.write("\nc\td\n".encode(encoding))
    del piece
    tracemalloc.start()
    with pytest.raises(Problem, match=r"line 2: the line is longer than 1,048,576 bytes; split it"):
        list(read_pairs(str(file)))
    assert [pair.src for pair in read_pairs(str(file), skip_bad=True)] == ["a", "c"]
    assert tracemalloc.get_traced_memory()[1] < 20 * MAX_LINE_BYTES
    tracemalloc.stop()
