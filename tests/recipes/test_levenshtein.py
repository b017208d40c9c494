"""The Levenshtein Transformer as a system: the papers' settings, lengths and batches."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from noise2text.data.tokenizer import Tokenizer
from noise2text.recipes.levenshtein import PRESETS, Levenshtein, build

from ..conftest import SMALL

TEXTS = ["sunday, 7 april 1957", "", "12. mai 2001", "a", "lundi 3 mars 1980"]


@pytest.fixture
def system(tokenizer: Tokenizer) -> Levenshtein:
    """Untrained, with heads that are far from zero: it deletes and inserts wildly."""
    known = {field.name for field in dataclasses.fields(PRESETS["tiny"])}
    changes = {key: value for key, value in SMALL.items() if key in known}
    torch.manual_seed(0)
    made = build(dataclasses.replace(PRESETS["tiny"], **changes), tokenizer).eval()
    with torch.no_grad():
        made.policies.deletes.weight.mul_(50)
        made.policies.opens.weight.mul_(50)
    return made


def test_the_default_is_the_papers_and_nine_iterations_are_diffuseqs() -> None:
    settings = PRESETS["wmt14-en-de"]
    assert (settings.width, settings.ffn, settings.heads, settings.decoder_layers) == (512, 2048, 8, 6)
    assert (settings.dropout, settings.most, settings.steps) == (0.3, 255, 300_000)
    assert settings.iterations == 9


def test_neither_the_batch_nor_the_seed_changes_a_text(system: Levenshtein) -> None:
    one, all_at_once, other = (
        system.generate(TEXTS, batch=batch, seed=seed) for batch, seed in ((1, 0), (9, 0), (9, 1))
    )
    assert one.texts == all_at_once.texts == other.texts
    assert len(set(one.texts)) > 1
    for ours, theirs in zip(one.scores, all_at_once.scores, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)


def test_a_text_has_at_most_the_longest_length_and_the_iterations_are_limited(system: Levenshtein) -> None:
    made = system.generate(TEXTS, trace=True, penalty=100.0)
    assert all(len(text) == 16 for text, source in zip(made.texts, TEXTS, strict=True) if source)
    assert all(1 <= len(trace) <= 9 for trace, source in zip(made.traces, TEXTS, strict=True) if source)
    short = system.generate(TEXTS, trace=True, iterations=1)
    assert [len(trace) for trace in short.traces] == [1, 0, 1, 1, 1]
    for text, trace in zip(short.texts, short.traces, strict=True):
        assert not trace or trace[-1].text == text
