"""CMLM as a system: the settings of the paper, lengths, batches, and everything learns."""

from __future__ import annotations

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.cmlm import CMLMModel
from noise2text.recipes.cmlm import PRESETS, build, objective

from ..conftest import shrunk

TEXTS = ["sunday, 7 april 1957", "", "12. mai 2001", "a", "lundi 3 mars 1980"]
SOURCES = [[8, 9, 10, 11], [12, 13], [14, 15, 16]]
TARGETS = [[20, 21, 22], [23, 24, 25, 26, 27], [28]]
SMALL_CONFIG = shrunk(PRESETS["tiny"])


@pytest.fixture
def model(tokenizer: Tokenizer) -> CMLMModel:
    torch.manual_seed(0)
    return build(SMALL_CONFIG, tokenizer).eval()


def test_the_default_is_the_papers(tokenizer: Tokenizer) -> None:
    config = PRESETS["wmt14-en-de"]
    model, optim, generation = config.model, config.optim, config.generation
    assert (model.model_dim, model.ffn_dim, model.heads, model.decoder_layers) == (512, 2048, 8, 6)
    assert (model.dropout, optim.weight_decay, optim.label_smoothing) == (0.3, 0.01, 0.1)
    assert (optim.lr, optim.warmup, optim.steps) == (5e-4, 10_000, 300_000)
    assert (optim.average_best, generation.iterations, generation.length_beam) == (5, 10, 5)


def test_neither_the_batch_nor_the_seed_changes_a_text(model: CMLMModel) -> None:
    one, all_at_once, other = (
        model.generate(TEXTS, batch=batch, seed=seed, length_beam=3, iterations=4)
        for batch, seed in ((1, 0), (9, 0), (9, 1))
    )
    assert one.texts == all_at_once.texts == other.texts
    assert one.candidates == all_at_once.candidates
    assert [len(candidates) for candidates in one.candidates] == [3, 0, 3, 3, 3]


def test_the_best_mean_score_of_the_lengths_wins(model: CMLMModel) -> None:
    made = model.generate(TEXTS, length_beam=4, iterations=2)
    lengths = [{len(candidate) for candidate in candidates} for candidates in made.candidates]
    assert list(map(len, lengths)) == [4, 0, 4, 4, 4]
    for text, candidates, scores in zip(made.texts, made.candidates, made.scores, strict=True):
        assert text == (candidates[scores.index(max(scores))] if scores else "")


def test_an_exact_length_is_kept_or_refused(model: CMLMModel) -> None:
    assert {len(text) for text in model.generate(["7 april", "mai"], length=6).texts} == {6}
    with pytest.raises(Problem, match="at most 16"):
        model.generate(["7 april"], length=17)


def test_a_trace_has_a_stop_an_iteration_with_ever_more_seen(model: CMLMModel) -> None:
    (trace,) = model.generate(["7 april 1957"], length=9, iterations=3, trace=True).traces
    assert [len(stop.noisy) for stop in trace] == [0, 3, 6]  # masks are not shown
    assert all(len(stop.text) == 9 for stop in trace)


def test_the_loss_is_the_cross_entropy_of_hidden_tokens_alone_and_everything_learns(model: CMLMModel) -> None:
    goal = objective(SMALL_CONFIG, model)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    hidden = goal.draw(canvas, make_key(0, torch.arange(3)), make_key(0))
    token_losses = goal(canvas, hidden)
    assert torch.equal(token_losses["masked"].mask, hidden)
    encoded = model.transformer.encode(canvas.source)
    states = model.transformer(
        canvas.tokens.masked_fill(hidden, model.tokenizer.mask), canvas.padding, encoded
    )
    logits = model.transformer.log_probs(states)
    n = torch.tensor([3, 5, 1])[:, None]
    for name, smoothing in (("masked", 0.1), ("nll", 0.0)):
        expected = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), canvas.tokens, reduction="none", label_smoothing=smoothing
        )
        assert torch.allclose(
            token_losses[name].values[hidden], (expected * 2 * n / (n + 1))[hidden], atol=1e-5
        )
    goal.loss({name: token_loss.total() for name, token_loss in token_losses.items()}).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
