"""Generation: the order of the input, whatever the batch; the seed decides."""

from __future__ import annotations

from typing import Any

import pytest

from noise2text.core.errors import Problem

from ..conftest import Make

TEXTS = ["sunday, 7 april 1957", "", "12. mai 2001", "a", "lundi 3 mars 1980", "  ", "9 de abril", "x" * 100]
OPTIONS: dict[str, Any] = {"steps": 5, "stop_early": 1, "length_beam": 2, "noise_beam": 2}


@pytest.mark.parametrize("select", ["mbr", "score"])
def test_the_text_does_not_depend_on_the_batch_size(small: Make, select: str) -> None:
    model = small()
    one, three, all_at_once = (
        model.generate(TEXTS, batch=batch, select=select, **OPTIONS) for batch in (1, 3, 100)
    )
    assert one.texts == three.texts == all_at_once.texts
    assert one.candidates == three.candidates == all_at_once.candidates


def test_a_stream_cut_into_windows_gives_the_same(small: Make) -> None:
    model = small()
    whole = model.generate(TEXTS, **OPTIONS).texts
    first = model.generate(TEXTS[:3], indices=range(3), **OPTIONS).texts
    rest = model.generate(TEXTS[3:], indices=range(3, len(TEXTS)), **OPTIONS).texts
    assert first + rest == whole


def test_a_text_of_spaces_is_an_empty_one(small: Make) -> None:
    assert small().generate(["  ", "7 april", "\t"], **OPTIONS).texts[::2] == ["", ""]


def test_an_empty_text_gives_an_empty_text_and_order_is_kept(small: Make) -> None:
    made = small().generate(TEXTS, **OPTIONS)
    assert len(made.texts) == len(TEXTS)
    assert made.texts[1] == ""
    assert made.candidates[1] == []
    found = zip(made.candidates, TEXTS, strict=True)
    assert all(len(candidates) == 4 for candidates, text in found if text.strip())
    assert all(
        text in candidates for text, candidates in zip(made.texts, made.candidates, strict=True) if candidates
    )


def test_the_seed_decides(small: Make) -> None:
    model = small()
    assert model.generate(TEXTS, seed=3, **OPTIONS).scores == model.generate(TEXTS, seed=3, **OPTIONS).scores
    assert model.generate(TEXTS, seed=3, **OPTIONS).scores != model.generate(TEXTS, seed=4, **OPTIONS).scores


def test_equal_texts_at_two_places_get_different_noise(small: Make) -> None:
    made = small().generate(["7 april", "7 april"], **OPTIONS)
    assert made.scores[0] != made.scores[1]


def test_what_is_too_long_is_cut_and_counted(small: Make) -> None:
    model = small()
    made = model.generate(TEXTS, **OPTIONS)
    assert made.truncated == 1
    assert (
        made.texts[-1]
        == model.generate([TEXTS[-1][: model.max_source]], indices=[len(TEXTS) - 1], **OPTIONS).texts[0]
    )


def test_a_trace_ends_with_the_answer(small: Make) -> None:
    made = small().generate(TEXTS, trace=True, **OPTIONS)
    for text, trace in zip(made.texts, made.traces, strict=True):
        if trace:
            assert len(trace) == 4
            assert trace[-1].text == text
    assert small().generate(TEXTS, **OPTIONS).traces == [[]] * len(TEXTS)


def test_selection_by_score_takes_the_best_score(small: Make) -> None:
    made = small().generate(TEXTS, select="score", **OPTIONS)
    for text, candidates, scores in zip(made.texts, made.candidates, made.scores, strict=True):
        if candidates:
            assert text == candidates[scores.index(max(scores))]


def test_a_wished_length_is_kept_exactly(small: Make) -> None:
    model = small()
    for length in (1, 5, 16):
        made = model.generate(TEXTS, length=length, steps=3, stop_early=0)
        assert {len(row) for row in model.tokenizer.encode([text for text in made.texts if text])} == {length}
    with pytest.raises(Problem, match="at most 16"):
        model.generate(TEXTS, length=17)
    with pytest.raises(Problem, match="at least 1"):
        model.generate(TEXTS, length=0)


def test_a_prefix_and_a_suffix_stand_at_every_step(small: Make) -> None:
    model = small()
    made = model.generate(TEXTS, prefix="19", suffix="-07", trace=True, **OPTIONS)
    for text, candidates, trace in zip(made.texts, made.candidates, made.traces, strict=True):
        if text:
            shown = [text, *candidates, *(stop.text for stop in trace), *(stop.noisy for stop in trace)]
            assert all(each.startswith("19") and each.endswith("-07") for each in shown)
            assert all(len(candidate) > 5 for candidate in candidates)
    plain = model.generate(TEXTS, **OPTIONS).texts
    assert model.generate(TEXTS, prefix="", suffix="", **OPTIONS).texts == plain
    with pytest.raises(Problem, match="nothing to write"):
        model.generate(TEXTS, prefix="1" * 16)
    with pytest.raises(Problem, match="nothing to write"):
        model.generate(TEXTS, prefix="19", length=2)


def test_nothing_to_do_is_done(small: Make) -> None:
    assert small().generate([]).texts == []


def test_an_unknown_setting_is_refused_by_name(small: Make) -> None:
    with pytest.raises(Problem, match="length_beam"):
        small().generate(TEXTS, lenght_beam=3)
    with pytest.raises(Problem, match="beam_size"):
        small().generate(TEXTS, beam_size=3)


def test_one_text_instead_of_a_list_is_refused(small: Make) -> None:
    with pytest.raises(Problem, match="list"):
        small().generate("7 april")
