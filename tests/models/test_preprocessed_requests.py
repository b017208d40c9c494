"""Laws of texts in several segments: one consistent output per text, whatever else is in the batch."""

from __future__ import annotations

from typing import Any

import pytest

import noise2text
from noise2text.models import Model

TEXTS = [
    "Hallo. Wie geht es dir? Lukas ist hier.",
    "",
    "wo ist der bahnhof",
    "Das kostet 25 Euro. 😀",
    "Where is the station?",
]
FEW: dict[str, Any] = {"steps": 3, "length_beam": 2, "noise_beam": 2}


@pytest.fixture(scope="module")
def model() -> Model:
    return noise2text.load("de-en", device="cpu", precision="float32")


def test_every_output_is_consistent(model: Model) -> None:
    output = model.generate(TEXTS, trace=True, n=3, **FEW)
    assert len(output.texts) == len(output.candidates) == len(output.traces) == len(TEXTS)
    for i, text in enumerate(output.texts):
        counts = {len(each[i]) for each in (output.candidates, output.scores, output.lengths, output.drafts)}
        assert len(counts) == 1
        chosen = output.chosen[i]
        if chosen is None:
            assert (text, output.candidates[i]) == ("", [])
            continue
        assert output.candidates[i][chosen] == text
        assert output.alternatives[i][0] == text
        last = output.traces[i][-1]
        assert last.text == "".join(last.tokens)
        assert len(last.tokens) == len(last.confidence)
        assert last.text == output.drafts[i][chosen][-1] == text
    assert "25 euros" in output.texts[3]
    assert output.texts[3].endswith("😀")
    assert [bool(each) for each in output.warnings] == [False, False, False, False, True]


def test_a_text_is_the_same_alone_and_in_any_batch(model: Model) -> None:
    together = model.generate(TEXTS, batch=3, **FEW)
    alone = [model.generate([text], indices=[i], **FEW) for i, text in enumerate(TEXTS)]
    assert together.texts == [each.texts[0] for each in alone]
    assert together.candidates == [each.candidates[0] for each in alone]


def test_sentences_of_a_line_are_generated_as_if_alone(model: Model) -> None:
    sentences = ["Guten Morgen.", "Wo ist der Bahnhof?"]
    line = model.generate([" ".join(sentences)], **FEW).texts[0]
    assert line == " ".join(model.generate([each], indices=[0], **FEW).texts[0] for each in sentences)


def test_one_sentence_that_needs_nothing_is_as_without_preprocessing(model: Model) -> None:
    preprocessed = model.generate(["Ich habe keine Zeit."], trace=True, **FEW)
    plain = model.generate(["Ich habe keine Zeit."], trace=True, preprocess="", **FEW)
    assert (preprocessed.candidates, preprocessed.scores) == (plain.candidates, plain.scores)
    assert preprocessed.drafts == plain.drafts


def test_steps_report_whole_texts(model: Model) -> None:
    seen: list[list[str]] = []
    output = model.generate(TEXTS, on_step=lambda time, texts: seen.append(texts), **FEW)
    assert {len(texts) for texts in seen} == {len(TEXTS)}
    assert output.texts[1] == seen[-1][1] == ""
