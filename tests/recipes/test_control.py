"""A prefix is kept by every system, a template or suffix by those that can; others say so."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import Model
from noise2text.models.registry import find_recipe, list_recipes

from ..conftest import lively, shrunk

TEXTS = ["sunday, 7 april 1957", "12. mai 2001"]
FEW: dict[str, Any] = {"steps": 3, "stop_early": 0, "iterations": 3}


def build_model(name: str, tokenizer: Tokenizer) -> Model:
    recipe = find_recipe(name)
    torch.manual_seed(0)
    model: Model = recipe.build(shrunk(recipe.preset("tiny")), tokenizer)
    return lively(model)


def known_to(model: Model, **settings: Any) -> dict[str, Any]:
    """Those of the generation settings that the model's family has."""
    return {name: value for name, value in settings.items() if hasattr(model.generation_config, name)}


WRITERS = [name for name, recipe in list_recipes().items() if recipe.fit is None]


@pytest.mark.parametrize("name", WRITERS)
def test_every_text_begins_with_the_prefix(name: str, tokenizer: Tokenizer) -> None:
    model = build_model(name, tokenizer)
    made = model.generate(TEXTS, prefix="19", trace=True, **known_to(model, **FEW))
    for text, trace in zip(made.texts, made.traces, strict=True):
        assert text.startswith("19")
        assert all(stop.text.startswith("19") for stop in trace)


@pytest.mark.parametrize("name", WRITERS)
def test_no_system_begins_with_what_it_cannot_write(name: str, tokenizer: Tokenizer) -> None:
    with pytest.raises(Problem, match="character that this model's vocabulary lacks"):
        build_model(name, tokenizer).generate(TEXTS, prefix="1%")


ENDS_ITSELF = [
    "seqdiffuseq",
    "diffuseq",
    "diffusion-lm",
    "diffuseq-autoregressive",
    "diffuseq-kernel",
    "cdcd",
    "ar-diffusion",
    "diffuseq-decoupled",
]
KNOWS_LENGTHS = ["difformer", "dinoiser", "cmlm"]


@pytest.mark.parametrize("name", [*ENDS_ITSELF, "word-by-word"])
def test_what_finds_the_end_itself_takes_no_suffix_and_no_length(name: str, tokenizer: Tokenizer) -> None:
    model = build_model(name, tokenizer)
    with pytest.raises(Problem, match="no suffix"):
        model.generate(TEXTS, suffix="07", steps=2)
    with pytest.raises(Problem, match="no setting 'length'"):
        model.generate(TEXTS, length=5, steps=2)


FAST: dict[str, Any] = {"steps": 3, "stop_early": 0}


def texts_of(model: Model, **options: Any) -> list[str]:
    """All that was written for the texts: candidates and every traced step."""
    made = model.generate(TEXTS, trace=True, **(known_to(model, **FAST) | options))
    candidates = [text for row in made.candidates for text in row]
    return candidates + [stop.text for trace in made.traces for stop in trace]


@pytest.mark.parametrize("name", [*ENDS_ITSELF, *KNOWS_LENGTHS])
@pytest.mark.parametrize(
    ("template", "pattern"),
    [
        ("___{4}-04-___{2}", r".{4}-04-.{2}"),
        ("19___{2}", r"19.{2}"),
        ("___{3}7", r".{3}7"),
        ("1___{1}5___{1}", r"1.5."),
        ("19___{2}-___", r"19.{2}-.*"),
    ],
)
def test_a_template_is_kept_at_every_step_and_nothing_is_written_beside_it(
    name: str, template: str, pattern: str, tokenizer: Tokenizer
) -> None:
    model = build_model(name, tokenizer)
    assert all(re.fullmatch(pattern, text) for text in texts_of(model, template=template))


@pytest.mark.parametrize("name", KNOWS_LENGTHS)
def test_open_gaps_share_the_length(name: str, tokenizer: Tokenizer) -> None:
    model = build_model(name, tokenizer)
    assert all(re.fullmatch(r".+-04-.+", text) for text in texts_of(model, template="___-04-___"))
    assert all(
        re.fullmatch(r"19.{3}-.{2}7", text) for text in texts_of(model, template="19___-___7", length=9)
    )
    with pytest.raises(Problem, match="The template has 5 tokens, but the length is to be 6"):
        model.generate(TEXTS, template="19___{3}", length=6)
    with pytest.raises(Problem, match="needs 7 tokens, but there is room for 6"):
        model.generate(TEXTS, template="19___{4}-", length=6)


@pytest.mark.parametrize("name", [*ENDS_ITSELF, *KNOWS_LENGTHS, "word-by-word"])
def test_a_prefix_is_a_template_with_an_open_end(name: str, tokenizer: Tokenizer) -> None:
    model = build_model(name, tokenizer)
    prefixed, templated = (
        model.generate(TEXTS, **(known_to(model, **FAST) | given))
        for given in ({"prefix": "19"}, {"template": "19___"})
    )
    assert prefixed.candidates == templated.candidates
    assert prefixed.scores == templated.scores


def test_a_prefix_beyond_the_expected_lengths_still_has_several(tokenizer: Tokenizer) -> None:
    """13 of 16 tokens are given where mostly fewer were expected."""
    options: dict[str, Any] = FAST | {"length_beam": 5}
    (texts,) = (
        build_model("difformer", tokenizer)
        .generate(["12. mai"], prefix="1957-04-07-19", **options)
        .candidates
    )
    assert {len(text) for text in texts} == {14, 15, 16}


@pytest.mark.parametrize("name", KNOWS_LENGTHS)
def test_a_suffix_is_a_template_with_an_open_beginning(name: str, tokenizer: Tokenizer) -> None:
    model = build_model(name, tokenizer)
    for parts, template in (
        ({"suffix": "-07"}, "___-07"),
        ({"prefix": "19", "suffix": "-07"}, "19___-07"),
    ):
        apart, templated = (
            model.generate(TEXTS, **(known_to(model, **FAST) | options))
            for options in (parts, {"template": template})
        )
        assert apart.scores == templated.scores
        assert apart.candidates == templated.candidates


@pytest.mark.parametrize("name", ENDS_ITSELF)
def test_what_finds_the_end_itself_wants_the_width_of_gaps_before_given_text(
    name: str, tokenizer: Tokenizer
) -> None:
    with pytest.raises(Problem, match=r"only the last gap of a template may be open.*___\{3\}"):
        build_model(name, tokenizer).generate(TEXTS, template="___-04-___", **FAST)


@pytest.mark.parametrize("template", ["___-07", "19___{2}"])
def test_word_by_word_takes_no_other_template(template: str, tokenizer: Tokenizer) -> None:
    with pytest.raises(Problem, match="takes a prefix, but no suffix"):
        build_model("word-by-word", tokenizer).generate(TEXTS, template=template, **FAST)


def test_an_impossible_template_is_refused(tokenizer: Tokenizer) -> None:
    model = build_model("difformer", tokenizer)
    for config, said in (
        ({"template": "1957"}, "has no gap"),
        ({"template": "19___", "prefix": "19"}, "without prefix and suffix"),
        ({"template": "___{17}"}, "needs 17 tokens, but there is room for 16"),
        ({"template": "1" * 16 + "___"}, "nothing to write"),
        ({"prefix": "%"}, "character that this model's vocabulary lacks"),
        ({"strategy": "word-by-word"}, "strategy is one of parallel, token-by-token"),
    ):
        with pytest.raises(Problem, match=said):
            model.generate(TEXTS, **(known_to(model, **FAST) | config))


@pytest.mark.parametrize("name", ["cmlm", "levenshtein"])
def test_what_writes_between_marks_or_at_a_known_length_takes_a_suffix(
    name: str, tokenizer: Tokenizer
) -> None:
    made = build_model(name, tokenizer).generate(TEXTS, prefix="19", suffix="07", trace=True)
    for text, trace in zip(made.texts, made.traces, strict=True):
        assert trace[-1].text == text
        assert all(stop.text.startswith("19") and stop.text.endswith("07") for stop in trace)
    with pytest.raises(Problem, match="leaves nothing to write"):
        build_model(name, tokenizer).generate(TEXTS, prefix="1" * 10, suffix="2" * 10)


@pytest.mark.parametrize(
    ("name", "wrong"), [("copy", "prefix"), ("nearest", "steps"), ("levenshtein", "length")]
)
def test_a_setting_of_another_family_is_refused_by_name(name: str, wrong: str, tokenizer: Tokenizer) -> None:
    config: dict[str, Any] = {wrong: 3}
    with pytest.raises(Problem, match=f"no setting '{wrong}'"):
        build_model(name, tokenizer).generate(TEXTS, **config)
