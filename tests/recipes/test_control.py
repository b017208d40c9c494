"""A prefix is kept by every system; a suffix by those that know the length; others say so."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from noise2text.problem import Problem
from noise2text.recipes import RECIPES
from noise2text.system import Diffusion
from noise2text.text.tokenizer import Tokenizer

from ..conftest import SMALL

TEXTS = ["sunday, 7 april 1957", "12. mai 2001"]


def system_of(name: str, tokenizer: Tokenizer) -> Diffusion:
    recipe = RECIPES[name]
    tiny = recipe.settings("tiny")
    known = {field.name for field in dataclasses.fields(tiny)}
    changes = {key: value for key, value in (SMALL | {"factor": 2.0}).items() if key in known}
    torch.manual_seed(0)
    system: Diffusion = recipe.build(dataclasses.replace(tiny, **changes), tokenizer)
    return system.eval()


@pytest.mark.parametrize("name", RECIPES)
def test_every_text_begins_with_the_prefix(name: str, tokenizer: Tokenizer) -> None:
    made = system_of(name, tokenizer).generate(TEXTS, prefix="19", steps=3, stop_early=0, trace=True)
    for text, trace in zip(made.texts, made.traces, strict=True):
        assert text.startswith("19")
        assert all(stop.text.startswith("19") for stop in trace)


@pytest.mark.parametrize("name", ["seqdiffuseq", "diffuseq", "diffusion-lm"])
def test_what_finds_the_end_itself_takes_no_suffix_and_no_length(name: str, tokenizer: Tokenizer) -> None:
    system = system_of(name, tokenizer)
    with pytest.raises(Problem, match="no suffix"):
        system.generate(TEXTS, suffix="07", steps=2)
    with pytest.raises(Problem, match="no setting 'length'"):
        system.generate(TEXTS, length=5, steps=2)
