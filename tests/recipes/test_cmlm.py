"""CMLM as a system: the settings of the paper, lengths, batches, and everything learns."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.core.random import key
from noise2text.data.ragged import Rows
from noise2text.data.tokenizer import Tokenizer
from noise2text.recipes.cmlm import PRESETS, Cmlm, CmlmSettings, build, objective

from ..conftest import SMALL

TEXTS = ["sunday, 7 april 1957", "", "12. mai 2001", "a", "lundi 3 mars 1980"]
SOURCES = [[8, 9, 10, 11], [12, 13], [14, 15, 16]]
TARGETS = [[20, 21, 22], [23, 24, 25, 26, 27], [28]]


@pytest.fixture
def system(tokenizer: Tokenizer) -> Cmlm:
    torch.manual_seed(0)
    return build(small(), tokenizer).eval()


def small() -> CmlmSettings:
    known = {field.name for field in dataclasses.fields(PRESETS["tiny"])}
    return dataclasses.replace(PRESETS["tiny"], **{k: v for k, v in SMALL.items() if k in known})


def test_the_default_is_the_papers(tokenizer: Tokenizer) -> None:
    settings = PRESETS["wmt14-en-de"]
    assert (settings.width, settings.ffn, settings.heads, settings.decoder_layers) == (512, 2048, 8, 6)
    assert (settings.dropout, settings.weight_decay, settings.label_smoothing) == (0.3, 0.01, 0.1)
    assert (settings.learning_rate, settings.warmup, settings.steps) == (5e-4, 10_000, 300_000)
    assert (settings.average, settings.iterations, settings.length_beam) == (5, 10, 5)


def test_neither_the_batch_nor_the_seed_changes_a_text(system: Cmlm) -> None:
    one, all_at_once, other = (
        system.generate(TEXTS, batch=batch, seed=seed, length_beam=3, iterations=4)
        for batch, seed in ((1, 0), (9, 0), (9, 1))
    )
    assert one.texts == all_at_once.texts == other.texts
    assert one.candidates == all_at_once.candidates
    assert [len(candidates) for candidates in one.candidates] == [3, 0, 3, 3, 3]


def test_the_best_mean_score_of_the_lengths_wins(system: Cmlm) -> None:
    made = system.generate(TEXTS, length_beam=4, iterations=2)
    for text, candidates, scores in zip(made.texts, made.candidates, made.scores, strict=True):
        if candidates:
            assert text == candidates[scores.index(max(scores))]
            assert len({len(candidate) for candidate in candidates}) == 4


def test_an_exact_length_is_kept_or_refused(system: Cmlm) -> None:
    assert {len(text) for text in system.generate(["7 april", "mai"], length=6).texts} == {6}
    with pytest.raises(Problem, match="at most 16"):
        system.generate(["7 april"], length=17)


def test_a_trace_has_a_stop_an_iteration_with_ever_more_seen(system: Cmlm) -> None:
    (trace,) = system.generate(["7 april 1957"], length=9, iterations=3, trace=True).traces
    assert [len(stop.noisy) for stop in trace] == [0, 3, 6]  # masks are not shown
    assert all(len(stop.text) == 9 for stop in trace)


def test_the_loss_is_the_surprise_at_hidden_tokens_alone_and_everything_learns(system: Cmlm) -> None:
    goal = objective(small(), system)
    canvas = system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    hidden = goal.draw(canvas, key(0, torch.arange(3)), key(0))
    tallies = goal(canvas, hidden)
    assert torch.equal(tallies["masked"].mask, hidden)
    memory = system.editor.read(canvas.source)
    states = system.editor(canvas.tokens.masked_fill(hidden, system.tokenizer.mask), canvas.padding, memory)
    logits = system.editor.log_probabilities(states)
    n = torch.tensor([3, 5, 1])[:, None]
    for name, smoothing in (("masked", 0.1), ("nll", 0.0)):
        expected = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), canvas.tokens, reduction="none", label_smoothing=smoothing
        )
        assert torch.allclose(tallies[name].value[hidden], (expected * 2 * n / (n + 1))[hidden], atol=1e-5)
    goal.loss({name: tally.total() for name, tally in tallies.items()}).backward()
    for name, parameter in system.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
