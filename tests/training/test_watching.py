"""What is only looked at is computed where somebody looks, and changes nothing that is learned."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from noise2text.data.tokenizer import Tokenizer
from noise2text.training.loop import evaluate_loss
from noise2text.training.step_runner import Plain

from .stepping import LEARNED, feed_of, made, trained


@pytest.mark.parametrize("name", LEARNED)
def test_who_looks_changes_nothing_that_is_learned(name: str, tokenizer: Tokenizer) -> None:
    """Not a bit of the weights, the times' history or the schedule, with dropout."""

    def seen_at(looked: Callable[[int], bool]) -> tuple[list[float], dict[str, Any]]:
        return trained(name, tokenizer, Plain(nullcontext), "cpu", dropout=0.3, looked=looked)

    losses, state = seen_at(lambda step: True)
    for looked in (lambda step: False, lambda step: step % 3 == 0):
        found, others = seen_at(looked)
        assert found == losses
        assert all(torch.equal(others[key], value) for key, value in state.items())


def test_what_is_only_watched_leaves_nothing_for_gradients(tokenizer: Tokenizer) -> None:
    """DiffuSeq rounds z₀ to learn and ẑ₀ to be looked at: the second is not kept for a backward pass."""
    system, objective = made("diffuseq", tokenizer, "cpu")
    canvas = feed_of(system, "cpu")(1)[0]
    tallies = objective(canvas, objective.draw(canvas, torch.arange(4), torch.tensor(3)))
    assert {name for name, tally in tallies.items() if tally.value.requires_grad} == set(objective.weights)
    assert {"nll", "nll_text"} == tallies.keys() - objective.weights.keys()


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("diffuseq", {"nll", "nll_text"}),
        ("diffuseq-guided", {"nll", "nll_text"}),  # one objective within another
        ("dinoiser", {"nll"}),
        ("difformer", set()),  # the anchor's surprises are there already
        ("seqdiffuseq", set()),  # the schedule follows the difficulty
        ("cdcd", set()),
        ("transformer", set()),
    ],
)
def test_where_nobody_looks_only_what_costs_and_teaches_nothing_is_left_out(
    name: str, left_out: set[str], tokenizer: Tokenizer
) -> None:
    system, objective = made(name, tokenizer, "cpu")
    canvas = feed_of(system, "cpu")(1)[0]
    valid = evaluate_loss(objective, [canvas], seed=0)
    objective.train()

    def terms() -> set[str]:
        return set(objective(canvas, objective.draw(canvas, torch.arange(4), torch.tensor(3))))

    everything = terms()
    assert everything == set(objective.counts(canvas))
    objective.watch(False)
    assert objective.idle == left_out
    assert terms() == everything - left_out
    assert evaluate_loss(objective, [canvas], seed=0) == valid  # validation looks
