"""The terms against torch's own losses; any combination is an objective."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss

from noise2text.data.ragged import Rows
from noise2text.diffusion.losses import Anchor, Mse, Nll, Rounding, Tally, Trace
from noise2text.nn.denoiser import Estimate

from ..conftest import Make


@pytest.fixture
def trace(small: Make) -> Trace:
    system = small()
    canvas = system.layout.canvas(Rows.of([[8, 9], [10]]), Rows.of([[20, 21, 22], [23]]))
    torch.manual_seed(1)
    z0 = system.denoiser.space.embed(canvas.tokens)
    denoiser = system.denoiser
    estimate = denoiser(
        torch.randn_like(z0), _level(2), denoiser.read(canvas.source), denoiser.hold(canvas), None
    )
    return Trace(canvas, z0, z0, estimate, denoiser.read(canvas.source), denoiser, _level(2))


def _level(rows: int):  # type: ignore[no-untyped-def]
    from noise2text.diffusion.schedules import Sqrt

    return Sqrt()(torch.full((rows,), 0.5), 1)


def test_vlb_is_the_mean_squared_error_over_what_is_not_padding(trace: Trace) -> None:
    kept = trace.canvas.scored
    tally = Tally(Mse().value(trace), Mse().mask(trace.canvas))
    expected = mse_loss(trace.estimate.mean[kept], trace.z0[kept])
    assert torch.allclose(tally.total() / tally.mask.sum(), expected)


def test_the_target_of_the_error_is_not_detached(trace: Trace) -> None:
    """The embeddings are drawn to the estimate, too (Difformer's released code)."""
    fixed = Estimate(trace.estimate.mean.detach(), trace.estimate.hidden.detach())
    Mse().value(replace(trace, estimate=fixed)).sum().backward()
    table = trace.denoiser.space.table
    assert table.grad is not None
    assert table.grad[20].abs().sum() > 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_anchor_is_label_smoothed_cross_entropy_of_the_estimate(trace: Trace, smoothing: float) -> None:
    logits = trace.estimate.mean @ trace.denoiser.space.table.T
    expected = cross_entropy(
        logits.transpose(1, 2), trace.canvas.tokens, reduction="none", label_smoothing=smoothing
    )
    assert torch.allclose(Anchor(smoothing=smoothing).value(trace), expected, atol=1e-5)


def test_nll_is_the_anchor_without_smoothing(trace: Trace) -> None:
    assert torch.equal(Nll().value(trace), Anchor(smoothing=0.0).value(trace))


def test_rounding_is_cross_entropy_of_the_clean_embeddings(trace: Trace) -> None:
    logits = trace.z0 @ trace.denoiser.space.table.T
    expected = cross_entropy(logits.transpose(1, 2), trace.canvas.tokens, reduction="none")
    assert torch.allclose(Rounding().value(trace), expected, atol=1e-5)


def test_a_tally_ignores_what_is_masked_even_if_it_is_not_a_number() -> None:
    tally = Tally(torch.tensor([1.0, torch.nan]), torch.tensor([True, False]))
    assert tally.total().item() == 1
