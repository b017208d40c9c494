"""The adaptive token-level schedule: the loss of each position rises linearly in time (SeqDiffuSeq, 4.3).

Each position i has its own ᾱⁱ(t). During training, the losses Lⁱ are averaged over bins of K timesteps. A
refit (algorithm 1) estimates from them the map M: L ↦ ᾱ (eq. 7, piecewise linear) and sets, for the T times,

    ᾱⁱ_new(t) = M(L),   L evenly spaced from the smallest loss to the largest.

The mean losses are noisy, but L must increase with t. Neighbouring bins whose losses do not increase are
therefore pooled (isotonic regression by pool-adjacent-violators; Ayer et al., 1955): a pool has the mean of
its losses and the mean of its ᾱ, and is one knot of M. At both ends the losses are extrapolated linearly from
the last two knots to the times 1/T and 1, where ᾱ does not change. So ᾱⁱ decreases strictly after any refit,
and z at time 1 is pure noise. A running maximum of the losses would do as well with many losses, but with few
it follows the noise: one loss that is too large by chance flattens all later ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from noise2text.diffusion.schedules import AlphaBarSchedule
from noise2text.nn.denoiser import NoiseLevel

__all__ = ["AdaptiveSchedule"]

MIN_RISE = 1e-5  # the smallest difference between the losses of neighbouring knots


class AdaptiveSchedule(AlphaBarSchedule):
    """A table of ᾱ, one row per time and one column per position, refitted to the losses that it observes."""

    def __init__(
        self, start: AlphaBarSchedule, positions: int, *, bin_size: int = 20, min_count: int = 100
    ) -> None:
        """At first `start` at all positions; `bin_size` is K, a refit needs `min_count` losses per bin."""
        super().__init__(start.num_timesteps)
        if start.num_timesteps % bin_size or start.num_timesteps < 2 * bin_size:
            raise ValueError(
                f"{start.num_timesteps} timesteps are not two or more whole bins of {bin_size}: change one."
            )
        self.bin_size, self.min_count = bin_size, min_count
        curve = start.alpha_bar(torch.linspace(0, 1, self.num_timesteps + 1, dtype=torch.float64))
        bins = self.num_timesteps // bin_size
        self.register_buffer("alpha_bars", curve[:, None].repeat(1, positions))  # (T + 1, positions)
        self.register_buffer("loss_sums", torch.zeros(bins, positions, dtype=torch.float64))
        self.register_buffer("counts", torch.zeros(bins, positions, dtype=torch.float64))

    alpha_bars: Tensor
    loss_sums: Tensor
    counts: Tensor

    def alpha_bar(self, t: Tensor) -> Tensor:
        """ᾱ (B, positions) at the times t (B,), interpolated linearly between the rows of the table."""
        row = (t.double() * self.num_timesteps).clamp(0, self.num_timesteps)
        before = row.floor().clamp(max=self.num_timesteps - 1).long()
        return torch.lerp(self.alpha_bars[before], self.alpha_bars[before + 1], (row - before)[:, None])

    def forward(self, t: Tensor, length: int) -> NoiseLevel:
        """The noise level of each row at its time t (B,), for each of the first `length` positions."""
        return self.level(self.alpha_bar(t)[:, :length], t[:, None])

    @torch.no_grad()
    def observe(self, t: Tensor, losses: Tensor, mask: Tensor) -> None:
        """Add the losses (B, L) of rows at the times t to their bins, where the mask is true."""
        bins = ((t * self.num_timesteps).round().long() - 1).clamp(min=0) // self.bin_size
        # A matrix product, not scatter_add: on a GPU the order of its additions, and so the sum, would vary.
        member = one_hot(bins, len(self.loss_sums)).double().T  # (bins, B)
        length = losses.shape[1]
        self.loss_sums[:, :length] += member @ torch.where(mask, losses, 0).double()
        self.counts[:, :length] += member @ mask.double()

    @torch.no_grad()
    def refit(self) -> Tensor:
        """The mask of the positions that were refitted: those with enough losses, which are then dropped."""
        ready = (self.counts >= self.min_count).all(0)  # (positions,)
        alpha_bars, loss_sums, counts = (
            each.cpu().numpy() for each in (self.alpha_bars, self.loss_sums, self.counts)
        )
        for position in ready.nonzero().flatten().tolist():
            curve = _linearize_losses(alpha_bars[1:, position], loss_sums[:, position], counts[:, position])
            self.alpha_bars[1:, position] = torch.from_numpy(curve).to(self.alpha_bars)
        self.loss_sums[:, ready] = 0
        self.counts[:, ready] = 0
        return ready

    @torch.no_grad()
    def reset(self) -> None:
        """Drop all losses observed so far."""
        self.loss_sums.zero_()
        self.counts.zero_()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Move with the model but keep float64: in bfloat16 neighbouring rows of the table would be equal."""
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for name, buffer in before.items():
            moved = self.get_buffer(name)
            if moved.dtype != buffer.dtype:
                setattr(self, name, buffer.to(moved.device))
        return self


def _linearize_losses(curve: np.ndarray, loss_sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """ᾱ at the times 1/T … 1 that makes the losses of the bins linear; `curve` if they never rise."""
    pools = _pool_violators(loss_sums, counts)
    if len(pools) == 1:
        return curve
    levels = curve.reshape(len(loss_sums), -1).mean(1)
    x = np.array([pool.mean for pool in pools])
    y = np.array([levels[pool.first : pool.end].mean() for pool in pools])
    middle = np.array([(pool.first + pool.end) / 2 for pool in pools])
    slope = np.diff(x) / np.diff(middle)  # per bin
    low = x[0] - slope[0] * middle[0]
    high = x[-1] + slope[-1] * (len(loss_sums) - middle[-1])
    knots, values = np.concatenate([[low], x, [high]]), np.concatenate([curve[:1], y, curve[-1:]])
    return np.interp(np.linspace(low, high, len(curve)), knots, values)


@dataclass(frozen=True)
class _PooledBins:
    """The bins from `first` to before `end`, with all their losses."""

    first: int
    end: int
    total: float
    count: float

    @property
    def mean(self) -> float:
        return self.total / self.count

    def __add__(self, later: _PooledBins) -> _PooledBins:
        return _PooledBins(self.first, later.end, self.total + later.total, self.count + later.count)


def _pool_violators(loss_sums: np.ndarray, counts: np.ndarray) -> list[_PooledBins]:
    """The bins in order; neighbours whose mean losses do not rise by MIN_RISE are pooled."""
    pools: list[_PooledBins] = []
    for index, (total, count) in enumerate(zip(loss_sums, counts, strict=True)):
        pools.append(_PooledBins(index, index + 1, float(total), float(count)))
        while len(pools) > 1 and pools[-1].mean < pools[-2].mean + MIN_RISE:
            last = pools.pop()
            pools[-1] += last
    return pools
