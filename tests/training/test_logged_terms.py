"""Terms that are only logged are computed at logged steps, and change nothing that is learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from noise2text.data.tokenizer import Tokenizer
from noise2text.training.loop import evaluate_loss

from .small_training import GRAPHABLE_RECIPES, build_small, make_batches, train_small


@pytest.mark.parametrize("name", GRAPHABLE_RECIPES)
def test_logging_changes_nothing_that_is_learned(name: str, tokenizer: Tokenizer) -> None:
    """Not a bit of the weights, of the history of losses or of the schedule, with dropout."""

    def train_logged_at(is_logged: Callable[[int], bool]) -> tuple[list[float], dict[str, Any]]:
        return train_small(name, tokenizer, "cpu", dropout=0.3, is_logged=is_logged)

    losses, state = train_logged_at(lambda step: True)
    for is_logged in (lambda step: False, lambda step: step % 3 == 0):
        found, others = train_logged_at(is_logged)
        assert found == losses
        assert all(torch.equal(others[key], value) for key, value in state.items())


def test_terms_that_are_only_logged_have_no_gradients(tokenizer: Tokenizer) -> None:
    """DiffuSeq trains on the rounding of z₀ and logs that of ẑ₀, which needs no backward pass."""
    model, objective = build_small("diffuseq", tokenizer, "cpu")
    canvas = make_batches(model, "cpu")(1)[0]
    token_losses = objective(canvas, objective.draw(canvas, torch.arange(4), torch.tensor(3)))
    assert {name for name, token_loss in token_losses.items() if token_loss.values.requires_grad} == set(
        objective.weights
    )
    assert {"nll", "nll_text"} == token_losses.keys() - objective.weights.keys()


@pytest.mark.parametrize(
    ("name", "skipped"),
    [
        ("diffuseq", {"nll", "nll_text"}),
        ("diffuseq-guided", {"nll", "nll_text"}),  # one objective within another
        ("dinoiser", {"nll"}),
        ("difformer", set()),  # the anchor computes them anyway
        ("seqdiffuseq", set()),  # the schedule follows the difficulty
        ("cdcd", set()),
        ("transformer", set()),
    ],
)
def test_steps_that_are_not_logged_skip_only_terms_that_cost_and_teach_nothing(
    name: str, skipped: set[str], tokenizer: Tokenizer
) -> None:
    model, objective = build_small(name, tokenizer, "cpu")
    canvas = make_batches(model, "cpu")(1)[0]
    valid = evaluate_loss(objective, [canvas], seed=0)
    objective.train()

    def terms() -> set[str]:
        return set(objective(canvas, objective.draw(canvas, torch.arange(4), torch.tensor(3))))

    everything = terms()
    assert everything == set(objective.counts(canvas))
    objective.terms_logged = False
    assert objective.skipped_terms == skipped
    assert terms() == everything - skipped
    assert evaluate_loss(objective, [canvas], seed=0) == valid  # validation computes all
