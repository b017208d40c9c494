"""Every analysis says what it needs and refuses what it lacks; every one is on the page of analyses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import noise2text
from noise2text.analysis.catalogue import ANALYSES, find_analysis
from noise2text.analysis.generation import GenerationOptions
from noise2text.analysis.inputs import OUTPUTS, RUNS, Analysis, Inputs
from noise2text.core.config import describe
from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair

PAGE = Path(noise2text.__file__).parents[2] / "docs" / "reference" / "analyses.md"
EACH = pytest.mark.parametrize("analysis", ANALYSES.values(), ids=list(ANALYSES))


@pytest.mark.parametrize("analysis", [each for each in ANALYSES.values() if each.needs], ids=lambda x: x.name)
def test_nothing_given_is_a_problem_that_names_the_need(analysis: Analysis) -> None:
    with pytest.raises(Problem, match=f"needs {analysis.needs[0].name}"):
        analysis(Inputs())


@EACH
def test_an_unknown_setting_is_refused_before_any_work(analysis: Analysis) -> None:
    with pytest.raises(Problem, match="there is no setting 'nonsense'"):
        analysis(Inputs(options={"nonsense": 1}))


@EACH
def test_the_page_names_every_analysis_with_its_needs_figure_and_settings(analysis: Analysis) -> None:
    page = PAGE.read_text()
    needs = ", ".join(need.name for need in analysis.needs) or "nothing"
    assert f"| `{analysis.name}` | {needs} | {analysis.paper_figure} |" in page
    for name, _, line in describe(analysis.options):
        assert line
        assert f"`{name}`" in page


def test_the_page_names_no_other() -> None:
    assert set(re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text(), re.MULTILINE)) == set(ANALYSES)


def test_analyses_are_found_by_name() -> None:
    assert find_analysis("curves").name == "curves"
    with pytest.raises(Problem, match="did you mean lengths"):
        find_analysis("length")
    with pytest.raises(Problem, match="there are lengths, curves"):
        find_analysis("xyz")


def test_what_is_needed_is_asked_for_in_turn() -> None:
    both = Analysis(
        "both", (OUTPUTS, RUNS), "", "", run=lambda inputs, options: [], options=GenerationOptions()
    )
    with pytest.raises(Problem, match="both needs runs: add the folder"):
        both(Inputs(outputs={"x": ["y"]}))
    assert both(Inputs(models=[Path("x")], outputs={"x": ["y"]}, pairs=[Pair("a", "b")])) == []
