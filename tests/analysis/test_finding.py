"""A finding is written whole, the same each time, and without a picture where it has none."""

from __future__ import annotations

import csv
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from noise2text.analysis.finding import Finding, ResultRow, plot_lines, to_csv, to_svg, write_findings
from noise2text.core.errors import Problem


def _draw(figure: Any) -> None:
    plot_lines(figure.subplots(), {"a": ([1, 2], [3, 4]), "b": ([1, 2], [4, 3])}, x="t", y="BLEU")


ROWS: list[ResultRow] = [{"t": 0.5, "bleu": 3.0}, {"t": 1.0, "bleu": None, "note": "a, b"}]
FOUND = Finding("found", "A title", "Difformer, figure 2a", ROWS, "seed:0", _draw)


def test_a_finding_is_written_as_json_csv_and_pictures(tmp_path: Path) -> None:
    written = write_findings([FOUND], tmp_path / "new")[FOUND.name]
    assert [path.suffix for path in written] == [".json", ".csv", ".svg", ".png"]
    assert json.loads(written[0].read_text())["rows"] == ROWS
    assert written[3].read_bytes().startswith(b"\x89PNG")


def test_the_csv_names_every_column_once_and_leaves_out_nothing() -> None:
    rows = list(csv.DictReader(to_csv(FOUND).splitlines()))
    assert rows == [{"t": "0.5", "bleu": "3.0", "note": ""}, {"t": "1.0", "bleu": "", "note": "a, b"}]


def test_a_picture_is_the_same_every_time_and_names_its_axes_and_lines() -> None:
    svg = to_svg(FOUND)
    assert svg == to_svg(FOUND)
    assert svg is not None
    assert "<svg" in svg


def test_a_dollar_in_a_name_is_a_dollar() -> None:
    def draw(figure: Any) -> None:
        plot_lines(figure.subplots(), {"a$b_{$": ([1, 2], [3, 4]), "b": ([1, 2], [4, 3])}, x="t", y="y")

    svg = to_svg(Finding("priced", "A title", "", ROWS, "", draw))
    assert svg is not None
    assert "a$b_{$" in svg


def test_what_cannot_be_drawn_has_no_picture(tmp_path: Path) -> None:
    bare = Finding("bare", "A title", "", ROWS, "")
    assert [path.name for path in write_findings([bare], tmp_path)["bare"]] == ["bare.json", "bare.csv"]


def test_without_matplotlib_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that needs no figure comes first."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    table = dataclasses.replace(FOUND, name="table", draw=None)
    with pytest.raises(Problem, match=r"pip install 'noise2text\[report\]'"):
        write_findings([table, FOUND], tmp_path / "out")
    assert not any(tmp_path.iterdir())
