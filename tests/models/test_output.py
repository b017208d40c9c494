"""Outputs by input, and how they show themselves: whole by themselves, escaped, short."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

import noise2text
from noise2text.models import GenerationOutput, TraceStep
from noise2text.models.output_html import MAX_SHOWN

from ..conftest import Make

VOID = {"br", "input"}


class Checker(HTMLParser):
    """Collects tags and texts, and checks that elements are nested."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def check(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert not checker.open
    return checker


def make_output(text: str = "<b>hi</b> & bye") -> GenerationOutput:
    return GenerationOutput(
        texts=[text],
        candidates=[["other", text, "worst"]],
        scores=[[-0.5, -0.7, -float("inf")]],
        lengths=[[1, 2, 3]],
        chosen=[1],
        traces=[[TraceStep(1.0, "x", "first & last"), TraceStep(0.25, "y", text)]],
    )


def test_an_output_is_a_sequence_of_its_inputs(small: Make) -> None:
    output = small().generate(["7 april", "", "12. mai 2001"], steps=3, stop_early=0, trace=True)
    assert len(output) == 3
    assert [each.text for each in output] == output.texts
    assert [list(each.candidates) for each in output] == output.candidates
    assert output[-1].trace == output.traces[2]
    assert output[1].chosen is None
    assert str(output[0]) == output.texts[0]
    with pytest.raises(IndexError):
        output[3]


def test_an_output_of_no_inputs_is_true(small: Make) -> None:
    assert small().generate([])


def test_texts_are_escaped_and_shown() -> None:
    html = make_output()._repr_html_()
    assert "<b>hi</b>" not in html
    checker = check(html)
    assert checker.texts.count("<b>hi</b> & bye") == 2  # the text, and the bold candidate
    assert any("first & last" in text for text in checker.texts)


def test_the_html_requests_nothing() -> None:
    html = make_output()._repr_html_()
    assert not re.search(r"https?:|src=|href=|<script|<link|@import|url\(", html)


def test_the_slider_has_one_place_per_step_and_starts_at_the_last() -> None:
    checker = check(make_output()._repr_html_())
    (slider,) = [attributes for tag, attributes in checker.tags if tag == "input"]
    assert (slider["min"], slider["max"], slider["value"]) == ("0", "1", "1")
    hidden = [attributes for tag, attributes in checker.tags if tag == "div" and "hidden" in attributes]
    assert len(hidden) == 1


def test_each_step_shows_the_noise_and_the_estimate() -> None:
    output = make_output()
    output.traces = [[TraceStep(1.0, "<noise> Hut", "<who> Where?"), TraceStep(0.25, "Where Hut", "Where?")]]
    shown = output._repr_html_()
    assert "&lt;noise&gt; Hut" in shown
    assert "→ &lt;who&gt; Where?" in shown
    assert "Where Hut" in shown
    assert shown.count("→ Where?") == 1


def test_without_a_trace_there_is_no_slider() -> None:
    output = make_output()
    output.traces = [[]]
    assert "<input" not in output._repr_html_()


def test_the_selected_candidate_comes_first_and_then_the_best_scores() -> None:
    html = make_output("mine")[0]._repr_html_()
    table = html[html.index("<table") :]
    assert table.index("mine") < table.index("other") < table.index("worst")


def test_alternatives_stand_below_the_text_in_their_order() -> None:
    output = make_output("mine")
    assert "<ol" not in output._repr_html_()
    output.alternatives = [["mine", "yours & his", "hers"]]
    html = output._repr_html_()
    check(html)
    assert '<ol start="2"' in html
    assert (
        html.index("<b>mine")
        < html.index("<li>yours &amp; his")
        < html.index("<li>hers")
        < html.index("<input")
    )


def test_many_inputs_are_counted_not_shown() -> None:
    one = make_output("short")
    many = GenerationOutput(
        *(getattr(one, name) * 50 for name in ("texts", "candidates", "scores", "lengths"))
    )
    many.chosen, many.traces = one.chosen * 50, one.traces * 50
    html = many._repr_html_()
    assert html.count("<section>") == MAX_SHOWN
    assert "and 30 more" in html
    assert repr(many) == "GenerationOutput(['short', 'short', 'short', … 50 texts])"


def test_the_repr_of_one_input_says_how_much_there_is() -> None:
    assert repr(make_output("a")[0]) == "TextOutput('a', 3 candidates, 2 steps)"


def test_a_slice_of_an_output_is_a_list_of_its_texts() -> None:
    model = noise2text.load("de-en", device="cpu", precision="float32")
    output = model.generate(["Hallo.", "Danke.", ""], steps=6, length_beam=1)
    assert output[:2] == [output[0], output[1]]
    assert [each.text for each in output[::-1]] == output.texts[::-1]
