"""Averages of weights against their definitions."""

import torch
from torch import nn

from noise2text.training.averaging import Ema, average_states


def test_ema_follows_its_recurrence() -> None:
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    ema = Ema(module, 0.9)
    expected = module.weight.detach().clone()
    for _ in range(5):
        with torch.no_grad():
            module.weight.add_(torch.randn_like(module.weight))
        ema.update()
        expected = 0.9 * expected + 0.1 * module.weight.detach()
    assert torch.allclose(ema.averages["weight"], expected, atol=1e-6)


def test_averages_are_applied_within_and_taken_back_after() -> None:
    module = nn.Linear(3, 2)
    ema = Ema(module, 0.5)
    with torch.no_grad():
        module.weight.add_(1)
    before, average = module.weight.detach().clone(), ema.averages["weight"].clone()
    with ema.average_parameters():
        assert torch.equal(module.weight, average)
    assert torch.equal(module.weight, before)
    assert torch.equal(ema.averages["weight"], average)


def test_the_mean_of_states() -> None:
    states = [{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 6.0])}]
    assert average_states(states)["w"].tolist() == [2.0, 4.0]
