"""Generation: the order of the input, whatever the batch; the seed decides."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.folder import load
from noise2text.models.registry import find_recipe

from ..conftest import Make, let_noise_decide, lively, shrunk

TEXTS = ["sunday, 7 april 1957", "", "12. mai 2001", "a", "lundi 3 mars 1980", "  ", "9 de abril", "x" * 100]
EMPTY = (1, 5)  # of the texts: nothing is written for them
OPTIONS: dict[str, Any] = {"steps": 5, "stop_early": 1, "length_beam": 2, "noise_beam": 2}


@pytest.mark.parametrize("use", ["move", "generate", "likelihood"])
def test_a_model_has_its_device_to_itself(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    """Otherwise it would break the CUDA graph that another thread captures (`device_guard`)."""
    recipe = find_recipe("transformer")
    model: Any = recipe.build(shrunk(recipe.preset("tiny")), tokenizer)
    is_guarded, seen = False, []

    @contextmanager
    def guard(device: torch.device) -> Iterator[None]:
        nonlocal is_guarded
        is_guarded = True
        yield
        is_guarded = False

    def watch(where: Any, name: str) -> None:
        function = getattr(where, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            seen.append(is_guarded)
            return function(*arguments, **options)

        monkeypatch.setattr(where, name, watched)

    for module in ("base", "autoregressive"):
        monkeypatch.setattr(f"noise2text.models.{module}.device_guard", guard)
    for where, name in ((model, "to"), (model, "build_decoder"), (model.network, "forward")):
        watch(where, name)
    if use == "move":
        model.move_to(torch.device("cpu"), "float32")
    elif use == "generate":
        model.generate(["a"])
    else:
        model.likelihood(["a"], ["a"])
    assert seen
    assert all(seen)


@pytest.mark.parametrize("select", ["mbr", "score"])
def test_the_text_does_not_depend_on_the_batch_size(small: Make, select: str) -> None:
    model = let_noise_decide(small())
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
    assert [len(trace) for trace in made.traces] == [0 if at in EMPTY else 4 for at in range(len(TEXTS))]
    for text, trace in zip(made.texts, made.traces, strict=True):
        assert [stop.text for stop in trace[-1:]] == [text] * bool(trace)
    untraced = small().generate(TEXTS, **OPTIONS)
    assert not any([*untraced.traces, *untraced.drafts, *untraced.utilities])
    assert (untraced.texts, untraced.scores) == (made.texts, made.scores)


@pytest.mark.parametrize(
    ("recipe", "options"),
    [
        ("difformer", {}),
        ("difformer", {"prefix": "19"}),
        ("difformer", {"strategy": "token-by-token"}),
        ("diffuseq", {}),
        ("cdcd", {}),
        ("dinoiser", {}),
        ("word-by-word", {}),
        ("cmlm", {"prefix": "19"}),
        ("levenshtein", {"prefix": "19"}),
    ],
)
def test_every_token_of_every_step_has_a_confidence(
    recipe: str, options: dict[str, Any], tokenizer: Tokenizer
) -> None:
    found = find_recipe(recipe)
    model = lively(found.build(shrunk(found.preset("tiny")), tokenizer))
    made = model.generate(TEXTS[:3], trace=True, **options)
    for text, trace, given in zip(made.texts, made.traces, made.chosen, strict=True):
        assert bool(trace) == (given is not None)
        for step in trace:
            assert len(step.confidence) == len(step.tokens)
            assert all(0 <= value <= 1 + 1e-6 for value in step.confidence)
            assert "".join(step.tokens) == step.text
            assert "".join(step.noisy_tokens).startswith(step.noisy) or "[" in "".join(step.noisy_tokens)
            assert step.confidence[: len(options.get("prefix", ""))] == (1,) * len(options.get("prefix", ""))
        assert not trace or trace[-1].text == text


def test_the_score_is_the_mean_log_confidence_of_the_last_step(small: Make) -> None:
    made = small().generate(TEXTS[:1], trace=True, length=7, **OPTIONS)
    assert made.chosen[0] is not None
    confidence = made.traces[0][-1].confidence
    mean = sum(map(math.log, confidence)) / len(confidence)
    assert mean == pytest.approx(made.scores[0][made.chosen[0]], abs=1e-4)


@pytest.mark.parametrize(
    "options", [{}, {"self_pair": False}, {"select": "weighted-mbr"}, {"candidate_is": "reference"}]
)
def test_the_chosen_candidate_agrees_most_with_the_others(small: Make, options: dict[str, Any]) -> None:
    made = small().generate(TEXTS, trace=True, utility="chrf", **(OPTIONS | options))
    for matrix, chosen, candidates in zip(made.utilities, made.chosen, made.candidates, strict=True):
        means = [sum(row) / len(row) for row in matrix]
        assert len(matrix) == len(candidates)
        assert chosen is None or means[chosen] == pytest.approx(max(means))
    assert made.utilities[0] != []


def test_drafts_end_with_the_candidates(small: Make) -> None:
    made = small().generate(TEXTS, trace=True, **OPTIONS)
    for drafts, candidates, chosen, trace in zip(
        made.drafts, made.candidates, made.chosen, made.traces, strict=True
    ):
        assert [texts[-1] for texts in drafts] == candidates
        assert chosen is None or drafts[chosen] == [step.text for step in trace]


def test_selection_by_score_takes_the_best_score(small: Make) -> None:
    made = small().generate(TEXTS, select="score", **OPTIONS)
    assert [not scores for scores in made.scores] == [at in EMPTY for at in range(len(TEXTS))]
    for text, candidates, scores in zip(made.texts, made.candidates, made.scores, strict=True):
        assert text == (candidates[scores.index(max(scores))] if scores else "")


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
        shown = [*candidates, *(stop.text for stop in trace), *(stop.noisy for stop in trace)]
        assert all(each.startswith("19") and each.endswith("-07") for each in shown)
        assert all(len(candidate) > 5 for candidate in candidates)
        assert text in (candidates or [""])
    assert [not candidates for candidates in made.candidates] == [at in EMPTY for at in range(len(TEXTS))]
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


@pytest.mark.parametrize(
    ("texts", "refusal"),
    [
        ("7 april", "generate takes a list of texts: put the one text into a list."),
        (None, "generate takes a list of texts, not None."),
        (7, "generate takes a list of texts, not 7."),
        (b"7 april", "generate takes a list of texts, not b'7 april'."),
        ({"7 april": 1}, "generate takes a list of texts, not a value of type dict."),
        (iter(["7 april"]), "generate takes a list of texts, not a value of type list_iterator."),
        ([1], "generate takes a list of texts, but its item 1 is 1: give strings."),
        (["7 april", None], "generate takes a list of texts, but its item 2 is None: give strings."),
    ],
)
def test_what_is_no_list_of_texts_is_refused(small: Make, texts: Any, refusal: str) -> None:
    with pytest.raises(Problem) as problem:
        small().generate(texts)
    assert str(problem.value) == refusal


@pytest.mark.parametrize("name", ["seed", "batch", "n"])
def test_numbers_are_whole(small: Make, name: str) -> None:
    texts = []
    for number in (1, numpy.int64(1), "3", None, 2.5):
        given: dict[str, Any] = {name: number, **OPTIONS}
        if number == 1:
            texts.append(small().generate(TEXTS, **given).texts)
            continue
        with pytest.raises(Problem, match=f"takes a whole number as {name}, not {number!r}: give"):
            small().generate(TEXTS, **given)
    assert texts[0] == texts[1]


def test_calling_a_model_gives_the_text_or_the_texts(small: Make) -> None:
    model = small()
    texts = model.generate(["7 april", "12. mai"], **OPTIONS).texts
    assert model(["7 april", "12. mai"], **OPTIONS) == texts
    assert model("7 april", **OPTIONS) == texts[0]


@pytest.mark.parametrize("strategy", ["parallel", "token-by-token"])
def test_on_step_sees_each_step_of_the_first_candidates_and_changes_nothing(
    small: Make, strategy: str
) -> None:
    model, seen = small(), []
    options = {**OPTIONS, "length_beam": 1, "noise_beam": 1, "strategy": strategy, "trace": True}
    output = model.generate(TEXTS, on_step=lambda time, texts: seen.append((time, texts)), **options)
    assert output.texts == model.generate(TEXTS, **options).texts
    assert [time for time, _ in seen] == [step.time for step in output.traces[0]]
    for step, (_, texts) in enumerate(seen):  # with one candidate, what is traced
        assert texts == [trace[step].text if trace else "" for trace in output.traces]


def test_on_step_sees_the_batches_before_and_nothing_of_those_to_come(small: Make) -> None:
    seen: list[list[str]] = []
    output = small().generate(
        ["7 april", "12. mai 2001"], batch=1, on_step=lambda time, texts: seen.append(texts), **OPTIONS
    )
    assert [texts[1] for texts in seen[:4]] == [""] * 4
    assert [texts[0] for texts in seen[4:]] == [output.texts[0]] * 4


def test_on_step_needs_denoising_steps(tokenizer: Tokenizer) -> None:
    recipe = find_recipe("transformer")
    model = recipe.build(shrunk(recipe.preset("tiny")), tokenizer)
    with pytest.raises(Problem, match="no denoising steps for on_step"):
        model.generate(["7 april"], on_step=print)


def test_the_repr_of_a_model_is_one_short_line(small: Make) -> None:
    model = small()
    count = sum(parameter.numel() for parameter in model.parameters())
    words = f"parameters={count:,}, vocabulary={len(model.tokenizer)}, device=cpu, precision=float32"
    assert repr(model) == f"LengthPredictingModel({words})"


def test_the_repr_of_a_loaded_model_names_its_recipe() -> None:
    shown = [repr(load("de-en", device="cpu", precision=precision)) for precision in ("float32", "int8")]
    assert [each.partition(", parameters=")[0] for each in shown] == [
        "LengthPredictingModel(recipe=difformer"
    ] * 2
    assert shown[0].replace("float32", "int8") == shown[1]


def test_a_batch_that_does_not_fit_into_memory_is_halved(small: Make) -> None:
    """A stand-in for a device on which at most three texts fit, with their candidates."""
    model = small()
    sizes: list[int] = []

    def refuse(module: Any, inputs: tuple[Any, ...]) -> None:
        sizes.append(len(inputs[0]) // 4)
        if sizes[-1] > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    expected = model.generate(TEXTS, batch=1, **OPTIONS)
    model.denoiser.register_forward_pre_hook(refuse)
    output = model.generate(TEXTS, batch=100, **OPTIONS)
    assert output.candidates == expected.candidates
    assert max(sizes) == len(TEXTS) - len(EMPTY)
    assert sizes.count(max(sizes)) == 1, "it tried more than once"


def test_a_single_text_that_does_not_fit_into_memory_raises_the_error(small: Make) -> None:
    model = small()

    def refuse(module: Any, inputs: tuple[Any, ...]) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    model.denoiser.register_forward_pre_hook(refuse)
    with pytest.raises(torch.OutOfMemoryError):
        model.generate(TEXTS)
