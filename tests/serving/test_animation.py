"""The animated picture: well-formed, without scripts, still if asked for, and as the package draws it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from noise2text.core.errors import Problem
from noise2text.models.folder import load
from noise2text.serving.animation import ROWS, draw_animation
from noise2text.serving.page_data import collect_page_data
from noise2text.serving.result import TextResult, keep_steps, make_results

from ..conftest import Make

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "denoising.svg"
SVG = "{http://www.w3.org/2000/svg}"


def texts(row: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in row.iter(f"{SVG}text")]


def traced(small: Make, text: str = "7 <april> & 1957", steps: int = 30) -> TextResult:
    output = small().generate([text], trace=True, steps=steps, stop_early=0)
    return make_results([text], output)[0]


def test_rows_are_steps_and_the_last_row_is_the_text(small: Make) -> None:
    result = traced(small)
    picture = ElementTree.fromstring(draw_animation(result))
    rows = [row for row in picture.iter(f"{SVG}g") if "row" in row.attrib["class"]]
    assert len(rows) == ROWS
    assert texts(rows[0])[0] == "step 1"
    assert texts(rows[-1])[0] == "step 30"
    assert texts(rows[-1])[1:] == [token.strip() or "␣" for token in result.steps[-1].tokens]
    cells = [each for each in rows[-1].iter(f"{SVG}rect") if each.attrib["class"] == "cell"]
    assert len(cells) == len(result.steps[-1].tokens)  # every token has reached its final form


def test_it_needs_nothing_from_outside_and_respects_the_viewer(small: Make) -> None:
    picture = draw_animation(traced(small))
    assert "<script" not in picture
    assert re.findall(r"https?://[^\"]+", picture) == ["http://www.w3.org/2000/svg"]
    assert "prefers-color-scheme: dark" in picture
    still = re.sub(r"@media \(prefers-reduced-motion: no-preference\) \{.*\n\}\n", "", picture, flags=re.S)
    assert "animation" not in still
    assert "opacity: 0" not in still


def test_texts_of_any_lengths_are_whole_and_unknown_confidence_draws_no_line(small: Make) -> None:
    result = traced(small)
    first, *others, last = result.steps
    longer = replace(last, tokens=[*last.tokens, " more"], confidence=[])
    picture = ElementTree.fromstring(draw_animation(replace(result, steps=[first, *others, longer])))
    final = next(row for row in picture.iter(f"{SVG}g") if "final" in row.attrib["class"])
    assert texts(final)[-1] == "more"
    assert {each.attrib["class"] for each in final.iter(f"{SVG}rect")} == {"cell"}


def test_a_text_without_steps_is_a_problem(small: Make) -> None:
    with pytest.raises(Problem, match="no steps to draw"):
        draw_animation(make_results([" "], small().generate([" "], trace=True))[0])


def test_kept_steps_are_spread_from_the_first_to_the_last(small: Make) -> None:
    result = traced(small)
    few = keep_steps(result, 5)
    assert [few.steps[0], few.steps[-1]] == [result.steps[0], result.steps[-1]]
    assert len(few.steps) == 5
    assert all(len(candidate.drafts) == 5 for candidate in few.candidates)
    assert few.candidates[0].drafts[-1] == few.candidates[0].text
    assert keep_steps(result, 30) is result


def test_the_picture_of_the_readme_is_what_the_shipped_model_does() -> None:
    model = load("de-en", device="cpu", precision="float32")
    text = "Kannst du mir bitte helfen, das Fenster zu öffnen?"
    data = collect_page_data({"de-en": model}, [text], seed=0, overrides={"steps": 20})
    drawn, committed = draw_animation(data.inputs[0][0]), PICTURE.read_text(encoding="utf-8")
    assert texts(ElementTree.fromstring(drawn)) == texts(ElementTree.fromstring(committed))
    assert len(committed) < 100_000
