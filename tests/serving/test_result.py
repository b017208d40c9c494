"""The JSON of a result: complete, and equal to what the model generated."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from noise2text.models.output import GenerationOutput
from noise2text.serving.result import make_results

from ..conftest import Make

SOURCES = ["7 april 1957", "", "monday the 3rd"]


def test_a_result_holds_the_text_its_candidates_and_its_steps(small: Make) -> None:
    model = small()
    output = model.generate(SOURCES, steps=4, stop_early=0, trace=True)
    for i, result in enumerate(make_results(SOURCES, output)):
        value = json.loads(json.dumps(dataclasses.asdict(result)))
        assert value["source"] == SOURCES[i]
        assert value["text"] == output.texts[i]
        assert [each["text"] for each in value["candidates"]] == output.candidates[i]
        assert [each["score"] for each in value["candidates"]] == output.scores[i]
        assert [step["text"] for step in value["steps"]] == [step.text for step in output.traces[i]]
        if value["chosen"] is not None:
            chosen = value["candidates"][value["chosen"]]
            assert chosen["text"] == value["text"]
            assert chosen["drafts"] == [step["text"] for step in value["steps"]]
            means = [sum(row) for row in value["utilities"]]
            assert means[value["chosen"]] == pytest.approx(max(means))
            assert "".join(value["steps"][-1]["tokens"]) == value["text"]
        else:
            assert (value["source"], value["text"], value["candidates"]) == ("", "", [])


def test_lengths_count_tokens(small: Make) -> None:
    model = small()
    output = model.generate(SOURCES, length=7)
    (first, empty, _) = make_results(SOURCES, output)
    assert {candidate.length for candidate in first.candidates} == {7}
    assert (empty.chosen, empty.candidates, empty.text) == (None, [], "")


def test_a_score_that_json_cannot_hold_is_none() -> None:
    output = GenerationOutput(["a"], [["a", "b"]], [[-math.inf, -1.0]], [[1, 1]], [0], [[]], [[]], [[]])
    (result,) = make_results(["x"], output)
    assert [candidate.score for candidate in result.candidates] == [None, -1.0]


def test_a_result_has_the_warnings_about_its_text() -> None:
    output = GenerationOutput.empty(2)
    output.warnings[1].append("It looks like French.")
    assert [result.warnings for result in make_results(["Hallo.", "Bonjour."], output)] == [
        [],
        ["It looks like French."],
    ]
