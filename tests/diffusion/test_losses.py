"""The terms against torch's own losses; any combination is an objective."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss

from noise2text.data.ragged import RaggedRows
from noise2text.diffusion.losses import (
    AnchorLoss,
    LossInputs,
    MseLoss,
    NllLoss,
    RoundingLoss,
    TokenLoss,
    average_by_sentence,
)
from noise2text.nn.denoiser import Estimate

from ..conftest import Make


@pytest.fixture
def inputs(small: Make) -> LossInputs:
    model = small()
    canvas = model.layout.make_canvas(
        RaggedRows.from_lists([[8, 9], [10]]), RaggedRows.from_lists([[20, 21, 22], [23]])
    )
    torch.manual_seed(1)
    z0 = model.denoiser.embedding.embed(canvas.tokens)
    denoiser = model.denoiser
    estimate = denoiser(
        torch.randn_like(z0), _level(2), denoiser.encode(canvas.source), denoiser.constrain(canvas), None
    )
    encoded, logits = denoiser.encode(canvas.source), denoiser.lazy_logits(estimate)
    return LossInputs(canvas, z0, z0, estimate, encoded, denoiser, _level(2), logits)


def _level(rows: int):  # type: ignore[no-untyped-def]
    from noise2text.diffusion.schedules import SqrtSchedule

    return SqrtSchedule()(torch.full((rows,), 0.5), 1)


def test_vlb_is_the_mean_squared_error_over_what_is_not_padding(inputs: LossInputs) -> None:
    kept = inputs.canvas.scored
    token_loss = TokenLoss(MseLoss().value(inputs), MseLoss().make_mask(inputs.canvas))
    expected = mse_loss(inputs.estimate.z0[kept], inputs.z0[kept])
    assert torch.allclose(token_loss.total() / token_loss.mask.sum(), expected)


def test_the_target_of_the_error_is_not_detached(inputs: LossInputs) -> None:
    """The embeddings are drawn to the estimate, too (Difformer's released code)."""
    fixed = Estimate(inputs.estimate.z0.detach(), inputs.estimate.hidden.detach())
    MseLoss().value(replace(inputs, estimate=fixed)).sum().backward()
    table = inputs.denoiser.embedding.weight
    assert table.grad is not None
    assert table.grad[20].abs().sum() > 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_anchor_is_label_smoothed_cross_entropy_of_the_estimate(inputs: LossInputs, smoothing: float) -> None:
    logits = inputs.estimate.z0 @ inputs.denoiser.embedding.weight.T
    expected = cross_entropy(
        logits.transpose(1, 2), inputs.canvas.tokens, reduction="none", label_smoothing=smoothing
    )
    assert torch.allclose(AnchorLoss(smoothing=smoothing).value(inputs), expected, atol=1e-5)


def test_nll_is_the_anchor_without_smoothing(inputs: LossInputs) -> None:
    assert torch.equal(NllLoss().value(inputs), AnchorLoss(smoothing=0.0).value(inputs))


def test_rounding_is_cross_entropy_of_the_clean_embeddings(inputs: LossInputs) -> None:
    logits = inputs.z0 @ inputs.denoiser.embedding.weight.T
    expected = cross_entropy(logits.transpose(1, 2), inputs.canvas.tokens, reduction="none")
    assert torch.allclose(RoundingLoss().value(inputs), expected, atol=1e-5)


@pytest.mark.parametrize("term", [MseLoss(weight=0.5), RoundingLoss()])
def test_averaged_by_sentence_a_term_is_the_mean_of_the_sentences_means(
    inputs: LossInputs, term: MseLoss | RoundingLoss
) -> None:
    averaged = average_by_sentence(term)
    token_loss = TokenLoss(averaged.value(inputs), averaged.make_mask(inputs.canvas))
    values, lengths = term.value(inputs), (3, 1)  # the targets' lengths; the rest is padding
    means = torch.stack([values[row, :length].mean() for row, length in enumerate(lengths)])
    assert torch.allclose(token_loss.total() / token_loss.mask.sum(), means.mean())
    assert (averaged.name, averaged.weight) == (term.name, term.weight)
    by_token = TokenLoss(values, term.make_mask(inputs.canvas))
    assert not torch.allclose(by_token.total() / by_token.mask.sum(), means.mean())


def test_a_tally_ignores_what_is_masked_even_if_it_is_not_a_number() -> None:
    token_loss = TokenLoss(torch.tensor([1.0, torch.nan]), torch.tensor([True, False]))
    assert token_loss.total().item() == 1
