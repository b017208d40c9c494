"""The Levenshtein Transformer as a system: the papers' settings, lengths and batches."""

from __future__ import annotations

import pytest
import torch

from noise2text.data.tokenizer import Tokenizer
from noise2text.models.levenshtein import LevenshteinModel
from noise2text.recipes.levenshtein import PRESETS, build

from ..conftest import shrunk

TEXTS = ["sunday, 7 april 1957", "", "12. mai 2001", "a", "lundi 3 mars 1980"]


@pytest.fixture
def model(tokenizer: Tokenizer) -> LevenshteinModel:
    """Untrained, with heads that are far from zero: it deletes and inserts wildly."""
    torch.manual_seed(0)
    made = build(shrunk(PRESETS["tiny"]), tokenizer).eval()
    with torch.no_grad():
        made.policies.deletion_head.weight.mul_(50)
        made.policies.placeholder_head.weight.mul_(50)
    return made


def test_demirags_model_has_the_base_shape_and_128_sentences_per_update() -> None:
    preset = PRESETS["covost-de-en"]
    assert (preset.model.model_dim, preset.model.ffn_dim, preset.model.heads) == (512, 2048, 8)
    assert preset.optim.max_tokens // preset.data.max_target == 128
    assert (preset.data.vocabulary, preset.data.normalize) == (30_000, True)


def test_the_default_is_the_papers_and_nine_iterations_are_diffuseqs() -> None:
    config = PRESETS["wmt14-en-de"]
    model = config.model
    assert (model.model_dim, model.ffn_dim, model.heads, model.decoder_layers) == (512, 2048, 8, 6)
    assert (model.dropout, model.max_placeholders, config.optim.steps) == (0.3, 255, 300_000)
    assert config.generation.iterations == 9


def test_neither_the_batch_nor_the_seed_changes_a_text(model: LevenshteinModel) -> None:
    one, all_at_once, other = (
        model.generate(TEXTS, batch=batch, seed=seed) for batch, seed in ((1, 0), (9, 0), (9, 1))
    )
    assert one.texts == all_at_once.texts == other.texts
    assert len(set(one.texts)) > 1
    for ours, theirs in zip(one.scores, all_at_once.scores, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)


def test_a_text_has_at_most_the_longest_length_and_the_iterations_are_limited(
    model: LevenshteinModel,
) -> None:
    made = model.generate(TEXTS, trace=True, penalty=100.0)
    assert all(len(text) == 16 for text, source in zip(made.texts, TEXTS, strict=True) if source)
    assert all(1 <= len(trace) <= 9 for trace, source in zip(made.traces, TEXTS, strict=True) if source)
    short = model.generate(TEXTS, trace=True, iterations=1)
    assert [len(trace) for trace in short.traces] == [1, 0, 1, 1, 1]
    for text, trace in zip(short.texts, short.traces, strict=True):
        assert not trace or trace[-1].text == text
