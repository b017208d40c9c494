"""How likely a diffusion model itself finds a given text: how well it reads the text through noise.

    ℓ(y | x) = Σ_i log p(y_i | z_t, x) + log p(|y| | x),     z_t = α_t·z₀(y) + σ_t·ε

A diffusion model has no likelihood that one pass computes, only bounds that take many. This stands in for
one: at a time t at which words are half hidden, p(y_i | z_t, x) comes from the source and from what is seen
of the other words. The noise is that of training, and ε is the same for all texts, position by position, so
that what sets candidates apart is what they say. It is one step more after a walk, and recorded like one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noise2text.acceleration.cuda_graphs import Captures, which, who
from noise2text.core.random import gaussian, key
from noise2text.data.layouts.canvas import Canvas
from noise2text.nn.denoiser import Denoiser, Estimate, Level, Memory, rows_at_once

__all__ = ["TIME", "Noised"]

TIME = 0.8
"""t: when a text is looked at. Looks at several times are hardly better (docs/difformer.md)."""


@dataclass(frozen=True)
class Noised:
    """A denoiser as a judge of given texts."""

    denoiser: Denoiser
    schedule: nn.Module  # that of training
    captures: Captures | None = None  # recorded graphs, where there are any

    @torch.inference_mode()
    def __call__(self, memory: Memory, canvas: Canvas) -> Tensor:
        """Σ_i log p(y_i | z_t, x) of every row of a canvas of texts, (B·C,); the memory has B rows."""
        if self.captures is None:
            return self._measure((memory, canvas))[0]
        name = ("noised", who(self.denoiser), *which(self.schedule))
        return self.captures.call(name, self._measure, (memory, canvas))[0]

    def _measure(self, given: tuple[Memory, Canvas]) -> tuple[Tensor]:
        memory, canvas = given
        held = self.denoiser.hold(canvas)
        level = self._level(held.given)
        z = level.alpha * held.given + level.sigma * _noise(held.given)
        right = self._right(self.denoiser(z, level, memory, held, None), canvas.tokens)  # (B·C, L)
        return (torch.where(canvas.scored, right, 0.0).sum(1),)

    def _right(self, estimate: Estimate, tokens: Tensor) -> Tensor:
        """The log-probabilities of these tokens (B·C, L)."""
        size, found = rows_at_once(estimate, len(self.denoiser.space.table)), []
        parts = (each.split(size) for each in (estimate.mean, estimate.hidden, tokens))
        for mean, hidden, own in zip(*parts, strict=True):
            logits = self.denoiser.logits(Estimate(mean, hidden)).float()
            found.append(logits.gather(-1, own[..., None])[..., 0] - logits.logsumexp(-1))
        return torch.cat(found)

    def _level(self, like: Tensor) -> Level:
        """How noisy the texts are looked at; made where they are, so that it can be recorded."""
        time = torch.full((1,), TIME, dtype=torch.float64, device=like.device)
        level: Level = self.schedule(time, like.shape[1])
        return Level(*(part.to(like) for part in (level.alpha, level.sigma, level.clock)))


def _noise(like: Tensor) -> Tensor:
    """The noise of every text, (1, L, D)."""
    return gaussian(key(torch.zeros(1, dtype=torch.long, device=like.device)), 0, *like.shape[1:])
