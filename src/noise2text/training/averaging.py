"""Averages of weights: over the steps of a run (EMA), or over several of its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

__all__ = ["Ema", "average_states"]


class Ema:
    """An exponential moving average of a module's parameters; buffers are state and are not averaged."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.parameters = dict(module.named_parameters())
        self.averages = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Move the averages towards the parameters."""
        torch._foreach_lerp_(list(self.averages.values()), list(self.parameters.values()), 1 - self.decay)

    @contextmanager
    def average_parameters(self) -> Iterator[None]:
        """Context manager: the module has the averages as its parameters."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, parameter in self.parameters.items():
            parameter.data, self.averages[name] = self.averages[name], parameter.data


def average_states(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor over several states, summed in float64."""
    return {
        name: (sum(state[name].double() for state in states) / len(states)).to(first.dtype)  # type: ignore[union-attr]
        for name, first in states[0].items()
    }
