"""The ranges of a corpus have all of its rows, once and in order, however it is cut."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from noise2text.core.errors import Problem
from noise2text.data import row_ranges
from noise2text.data.corpus import read_sources
from noise2text.data.row_ranges import cut_into_ranges, read_sources_of_range

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), min_size=1, max_size=30)


def read_all(path: Path | str, rows: int) -> list[str]:
    """The texts of all ranges; each range must have as many as it says."""
    ranges = cut_into_ranges(str(path), rows)
    texts = [list(read_sources_of_range(each)) for each in ranges]
    assert [len(part) for part in texts] == [each.stop - each.start for each in ranges]
    assert [each.start for each in ranges] == [0, *(each.stop for each in ranges)][:-1]
    assert all(len(part) <= rows for part in texts)
    return [text for part in texts for text in part]


@settings(deadline=None, max_examples=60)
@given(
    texts=TEXTS,
    rows=st.integers(1, 12),
    block=st.integers(1, 40),
    end=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    mark=st.booleans(),
)
def test_json_lines_are_cut_without_loss(
    texts: list[str],
    rows: int,
    block: int,
    end: str,
    last: bool,
    mark: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("lines") / "in.jsonl"
    lines = end.join(json.dumps({"src": text}, ensure_ascii=False) for text in texts) + (end if last else "")
    path.write_bytes(lines.encode("utf-8-sig" if mark else "utf-8"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_ranges, "BLOCK", block)
        assert read_all(path, rows) == texts == list(read_sources(str(path)))


@settings(deadline=None, max_examples=30)
@given(texts=TEXTS, rows=st.integers(1, 12), group=st.integers(1, 9))
def test_parquet_is_cut_without_loss(
    texts: list[str], rows: int, group: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("tables") / "in.parquet"
    table = pyarrow.table({"de": texts, "en": ["x"] * len(texts)})
    parquet.write_table(table, path, row_group_size=group)
    assert read_all(f"{path}[de,en]", rows) == texts == list(read_sources(f"{path}[de,en]"))


def test_the_rows_of_a_folder_are_counted_on_over_its_files(tmp_path: Path) -> None:
    for name, texts in (("b", ["4", "5"]), ("a", ["1", "2", "3"])):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    assert read_all(tmp_path, 2) == ["1", "2", "3", "4", "5"]
    (tmp_path / "c.parquet").write_bytes(b"")
    with pytest.raises(Problem, match="files of one kind"):
        cut_into_ranges(str(tmp_path), 2)


def test_mistakes_are_named(tmp_path: Path) -> None:
    bad = tmp_path / "in.jsonl"
    bad.write_text('{"src": "one"}\n{"src": "two"}\n{"src": 3}\n')
    first, second = cut_into_ranges(str(bad), 2)
    assert list(read_sources_of_range(first)) == ["one", "two"]
    with pytest.raises(Problem, match='line 3: "src" is not a string'):
        list(read_sources_of_range(second))
    (tmp_path / "in.txt").write_text("one\n")
    with pytest.raises(Problem, match="give JSON Lines"):
        cut_into_ranges(str(tmp_path / "in.txt"), 2)
    with pytest.raises(Problem, match="There is no file"):
        cut_into_ranges(str(tmp_path / "none.jsonl"), 2)
    with pytest.raises(Problem, match="at least 1 row"):
        cut_into_ranges(str(bad), 0)
    bad.write_bytes('{"src": "one"}\n'.encode("utf-16"))
    with pytest.raises(Problem, match="save it as UTF-8"):
        cut_into_ranges(str(bad), 2)
    (tmp_path / "empty.jsonl").write_text("")
    assert cut_into_ranges(str(tmp_path / "empty.jsonl"), 2) == []
