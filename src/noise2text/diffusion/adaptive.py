"""The adaptive token-level schedule: denoising becomes harder on a line (SeqDiffuSeq, section 4.3).

Each position i has its own ᾱⁱ(t). While training, the losses Lⁱ are averaged over bins of K steps. A refit
(algorithm 1) reads from them the map M: L ↦ ᾱ (eq. 7, piecewise linear) and takes for the T times

    ᾱⁱ_new(t) = M(L),   L evenly spaced from the smallest loss to the largest.

The mean losses are made increasing first, Lₛ ← max(Lₛ, Lₛ₋₁ + 10⁻⁵), and go on for half a bin at both
ends, to the times 1/T and 1, whose ᾱ therefore stay. So ᾱⁱ falls strictly after any refit, and z at time 1
is pure noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from noise2text.diffusion.schedules import Level, Schedule

__all__ = ["Adaptive"]

RISE = 1e-5  # the least difference of two neighbouring bins' losses


class Adaptive(Schedule):
    """A table of ᾱ, a row a time and a column a position, that is refitted to the losses it observes."""

    def __init__(self, start: Schedule, positions: int, *, stride: int = 20, least: int = 100) -> None:
        """Begins as `start` everywhere; `stride` is K, `least` the losses that a bin needs before a refit."""
        super().__init__(start.steps)
        if start.steps % stride or start.steps < 2 * stride:
            raise ValueError(f"{start.steps} steps are not two or more whole bins of {stride}")
        self.stride, self.least = stride, least
        curve = start.alpha_bar(torch.linspace(0, 1, self.steps + 1, dtype=torch.float64))
        bins = self.steps // stride
        self.register_buffer("table", curve[:, None].repeat(1, positions))  # (T + 1, positions)
        self.register_buffer("sums", torch.zeros(bins, positions, dtype=torch.float64))
        self.register_buffer("counts", torch.zeros(bins, positions, dtype=torch.float64))

    table: Tensor
    sums: Tensor
    counts: Tensor

    def alpha_bar(self, t: Tensor) -> Tensor:
        """ᾱ at the times t (B,), a column a position, on straight lines between the table's rows."""
        row = (t.double() * self.steps).clamp(0, self.steps)
        before = row.floor().clamp(max=self.steps - 1).long()
        return torch.lerp(self.table[before], self.table[before + 1], (row - before)[:, None])

    def forward(self, t: Tensor, length: int) -> Level:
        """The level of each row at its time t (B,), for each of the first `length` positions."""
        alpha_bar = self.alpha_bar(t)[:, :length, None]  # (B, L, 1)
        return Level(
            alpha=alpha_bar.sqrt(),
            sigma=(1 - alpha_bar).sqrt(),
            clock=(t - 1 / self.steps).clamp(min=0)[:, None],
        )

    @torch.no_grad()
    def observe(self, t: Tensor, losses: Tensor, mask: Tensor) -> None:
        """Take note of the losses (B, L) of rows at the times t, where the mask is true."""
        bins = ((t * self.steps).round().long() - 1).clamp(min=0) // self.stride
        # A matrix product, not scattered additions: on a GPU their order, and so their sum, would vary.
        member = one_hot(bins, len(self.sums)).double().T  # (bins, B)
        length = losses.shape[1]
        self.sums[:, :length] += member @ torch.where(mask, losses, 0).double()
        self.counts[:, :length] += member @ mask.double()

    @torch.no_grad()
    def refit(self) -> Tensor:
        """Adapt the positions that have seen enough, which are returned, and forget their losses."""
        ready = (self.counts >= self.least).all(0)  # (positions,)
        losses, levels = self._knots()
        share = torch.linspace(0, 1, self.steps, dtype=torch.float64, device=losses.device)
        wanted = torch.lerp(losses[:1], losses[-1:], share[:, None])  # (T, positions)
        self.table[1:] = torch.where(ready, _interpolated(wanted, losses, levels), self.table[1:])
        self.sums[:, ready] = 0
        self.counts[:, ready] = 0
        return ready

    @torch.no_grad()
    def forget(self) -> None:
        """Drop all losses observed so far."""
        self.sums.zero_()
        self.counts.zero_()

    def _knots(self) -> tuple[Tensor, Tensor]:
        """The losses and the ᾱ that M joins: those of the bins and, half a bin further, of both ends."""
        losses = _increasing(self.sums / self.counts.clamp(min=1))
        first = losses[:1] - (losses[1:2] - losses[:1]) / 2
        last = losses[-1:] + (losses[-1:] - losses[-2:-1]) / 2
        levels = self.table[1:].unflatten(0, (-1, self.stride)).mean(1)
        return torch.cat([first, losses, last]), torch.cat([self.table[1:2], levels, self.table[-1:]])

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Moves with the model, but keeps its precision: in bfloat16 the table's rows would coincide."""
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for name, buffer in before.items():
            moved = self.get_buffer(name)
            if moved.dtype != buffer.dtype:
                setattr(self, name, buffer.to(moved.device))
        return self


def _increasing(losses: Tensor) -> Tensor:
    """The least rows that are no smaller than these and rise by RISE or more, each column for itself."""
    ramp = RISE * torch.arange(len(losses), dtype=losses.dtype, device=losses.device)[:, None]
    return (losses - ramp).cummax(0).values + ramp


def _interpolated(at: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """y at the places `at`, on straight lines between increasing x, each column for itself."""
    right = torch.searchsorted(x.T.contiguous(), at.T.contiguous()).T.clamp(1, len(x) - 1)
    (x0, x1), (y0, y1) = ((value.gather(0, right - 1), value.gather(0, right)) for value in (x, y))
    return torch.lerp(y0, y1, ((at - x0) / (x1 - x0)).clamp(0, 1))
