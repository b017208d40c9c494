"""Loss-aware times: often where the loss is large, and unbiased all the same."""

import pytest
import torch
from torch import Tensor

from noise2text.diffusion.loss_aware_times import LossAwareTimes


def taught(losses: Tensor) -> LossAwareTimes:
    """Times that have seen the losses (n, T), row after row."""
    times = LossAwareTimes(losses.shape[1])
    t = (torch.arange(losses.shape[1]) + 1) / losses.shape[1]
    for row in losses:
        times.observe(t, row)
    return times


def test_times_are_uniform_until_every_time_has_ten_losses() -> None:
    times = LossAwareTimes(4)
    t = torch.tensor([0.25, 0.5, 0.75, 1.0])
    for _ in range(9):
        times.observe(t, torch.tensor([1.0, 2.0, 3.0, 4.0]))
    times.observe(t[:3], torch.ones(3))
    assert times.probabilities().tolist() == [0.25] * 4
    times.observe(t[3:], torch.ones(1))
    assert times.probabilities().unique().numel() == 4


def test_probabilities_are_those_of_a_case_done_by_hand() -> None:
    """The first time has ten losses of 3 and 4 each, the second ten of 1: √12.5 against 1."""
    times = taught(torch.tensor([[3.0, 1.0], [4.0, 1.0]] * 5))
    share = 12.5**0.5 / (12.5**0.5 + 1)
    p = times.probabilities()
    assert p[0].item() == pytest.approx(0.999 * share + 0.0005)
    assert p.sum().item() == pytest.approx(1)


def test_only_the_last_ten_losses_count() -> None:
    old, new = torch.rand(7, 5) + 9, torch.rand(10, 5)
    assert torch.allclose(taught(torch.cat([old, new])).probabilities(), taught(new).probabilities())


def test_rows_that_share_a_time_are_observed_like_one_after_another() -> None:
    torch.manual_seed(0)
    together, apart = LossAwareTimes(6), LossAwareTimes(6)
    for _ in range(12):
        t = torch.randint(1, 4, (40,)) / 6  # some times come more than ten times, some never
        losses = torch.rand(40)
        together.observe(t, losses)
        for one, loss in zip(t, losses, strict=True):
            apart.observe(one[None], loss[None])
    assert torch.equal(together.losses, apart.losses)
    assert torch.equal(together.counts, apart.counts)


def test_weights_leave_the_expected_loss_unbiased() -> None:
    loss = torch.linspace(0, 1, 50).double().square()
    times = taught(loss.float().expand(10, -1))
    t, weight = times((torch.arange(1_000_000) + 0.5) / 1_000_000)
    drawn = loss[(t * 50).round().long() - 1]
    assert (weight * drawn).mean().item() == pytest.approx(loss.mean().item(), abs=1e-4)
    assert drawn.mean().item() > 1.5 * loss.mean().item()  # without the weights it would be


def test_times_are_drawn_as_often_as_their_probability() -> None:
    times = taught(torch.tensor([[1.0, 2.0, 5.0]] * 10))
    t, weight = times(torch.rand(100_000, generator=torch.Generator().manual_seed(0)).double())
    frequency = torch.bincount((t * 3).round().long())[1:] / 100_000
    assert torch.allclose(frequency.double(), times.probabilities(), atol=0.01)
    assert weight.dtype == torch.float32
    assert torch.allclose(weight.double(), 1 / (3 * times.probabilities()[(t * 3).round().long() - 1]))


def test_quantiles_at_both_ends_are_times() -> None:
    t, _ = taught(torch.rand(10, 7))(torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64))
    assert t.tolist() == pytest.approx([1 / 7, 1])


def test_in_evaluation_times_are_uniform() -> None:
    times = taught(torch.tensor([[1.0, 9.0]] * 10)).eval()
    t, weight = times(torch.tensor([0.1, 0.4, 0.6, 0.9]))
    assert t.tolist() == [0.5, 0.5, 1.0, 1.0]
    assert weight.tolist() == [1.0] * 4


def test_what_was_observed_is_in_the_state() -> None:
    times, again = taught(torch.rand(10, 5)), LossAwareTimes(5)
    again.load_state_dict(times.state_dict())
    assert torch.equal(again.probabilities(), times.probabilities())
