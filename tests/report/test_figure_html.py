"""Pictures become parts of a page without getting into each other's way."""

from __future__ import annotations

import re
from typing import Any

from noise2text.analysis.finding import Finding, plot_lines, to_svg
from noise2text.report.figure_html import MAX_ROWS, figure, figures, inline

from .parsed import Parsed


def finding(rows: int = 3, title: str = "a <title>") -> Finding:
    def draw(canvas: Any) -> None:
        plot_lines(canvas.subplots(), {"a<b": ([0, 1], [0, 1]), "c": ([0, 1], [1, 0])}, x="x", y="y & z")

    return Finding("same", title, "a paper", [{"x": n, "word": "<w>"} for n in range(rows)], "how|made", draw)


def test_every_id_is_its_own_and_every_reference_leads_to_one() -> None:
    parsed = Parsed(figures([finding(), finding()], prefix="part"))
    ids = parsed.values("id")
    assert len(ids) == len(set(ids)) > 20
    used = [href.removeprefix("#") for href in parsed.values("href")]
    clips = re.findall(r"url\(#([^)]+)\)", " ".join(parsed.values("clip-path")))
    assert used
    assert clips
    assert set(used) | set(clips) <= set(ids)
    assert parsed.unbalanced == []


def test_a_picture_keeps_its_paths_and_words_and_nothing_of_its_file() -> None:
    svg = to_svg(finding())
    assert svg is not None
    shown = inline(svg, prefix="p", label='a "label"')
    assert shown.startswith('<svg role="img" aria-label="a &quot;label&quot;"')
    paths = re.compile(r'\sd="[^"]+"')
    assert paths.findall(shown) == paths.findall(svg)
    assert "y &amp; z</text>" in shown
    for gone in ("http", "xmlns", "<style", "<metadata", "<!--", "<?xml"):
        assert gone not in shown


def test_a_figure_has_a_caption_a_name_and_its_numbers() -> None:
    parsed = Parsed(figure(finding(), prefix="p"))
    assert parsed.all("svg")[0]["aria-label"] == "a <title>"
    assert parsed.words["b"] == ["a <title>."]
    assert parsed.words["code"] == ["how|made"]
    assert parsed.words["span"] == ["<w>"] * 3


def test_a_long_table_is_left_to_files_and_a_finding_without_a_picture_is_a_table() -> None:
    assert f"{MAX_ROWS + 1} rows are too many" in figure(finding(MAX_ROWS + 1), prefix="p")
    plain = Finding("plain", "t", "", [{"x": 1}], "s")
    parsed = Parsed(figure(plain, prefix="p"))
    assert parsed.all("svg") == []
    assert parsed.all("table") == [{}]
