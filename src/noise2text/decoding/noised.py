"""How likely a diffusion model itself finds a given text: how well it reads the text through noise.

    ℓ(y | x) = 1/|T| · Σ_{t ∈ T} Σ_i log p(y_i | z_t, x) + log p(|y| | x),     z_t = α_t·z₀(y) + σ_t·ε

A diffusion model has no likelihood that one pass computes, only bounds that take many. This stands in for
one: at a few times T at which words are half hidden, p(y_i | z_t, x) comes from the source and from what is
seen of the other words. The noise is that of training, and ε is the same for all texts, position by position,
so that what sets candidates apart is what they say. On a GPU all of it is one recorded graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noise2text.decoding.captured import Captures, who
from noise2text.diffusion.denoiser import Denoiser
from noise2text.diffusion.noise import gaussian, key
from noise2text.diffusion.schedules import Level
from noise2text.hardware import send
from noise2text.networks.lengths import Lengths
from noise2text.text.canvas import Canvas

__all__ = ["TIMES", "Noised"]

TIMES = (0.9, 0.75, 0.6)
"""T: at these times a text is looked at."""


@dataclass(frozen=True)
class _Given:
    """The texts, and the levels at the times T, a row each."""

    canvas: Canvas
    alpha: Tensor  # (T, 1 or L, 1)
    sigma: Tensor  # (T, 1 or L, 1)
    clock: Tensor  # (T, 1 or L)

    def level(self, number: int) -> Level:
        return Level(*(each[number, None] for each in (self.alpha, self.sigma, self.clock)))


@dataclass(frozen=True)
class Noised:
    """The parts of a model that predicts lengths, as a judge of given texts."""

    denoiser: Denoiser
    schedule: nn.Module  # that of training
    lengths: Lengths
    captures: Captures | None = None  # recorded graphs, where there are any

    @torch.inference_mode()
    def __call__(self, canvas: Canvas) -> Tensor:
        """ℓ of every row's target, (B,)."""
        level: Level = self.schedule(torch.tensor(TIMES, dtype=torch.float64), canvas.tokens.shape[1])
        levels = (level.alpha, level.sigma, level.clock)
        given = _Given(canvas, *(send(each.float(), canvas.tokens.device) for each in levels))
        if self.captures is None:
            return self._measure(given)[0]
        name = ("noised", who(self.denoiser), self.lengths.classes.weight.data_ptr())
        return self.captures.call(name, self._measure, given)[0]

    def _measure(self, given: _Given) -> tuple[Tensor]:
        canvas = given.canvas
        memory, held = self.denoiser.read(canvas.source), self.denoiser.hold(canvas)
        total = -self.lengths.surprise(memory, canvas.padding)[:, 0]
        for number in range(len(TIMES)):
            level, noise = given.level(number), self._noise(number, held.given)
            z = level.alpha * held.given + level.sigma * noise
            logits = self.denoiser.logits(self.denoiser(z, level, memory, held, None)).float()
            right = logits.gather(-1, canvas.tokens[..., None])[..., 0] - logits.logsumexp(-1)  # (B, L)
            total = total + torch.where(canvas.scored, right, 0.0).sum(1) / len(TIMES)
        return (total,)

    def _noise(self, number: int, like: Tensor) -> Tensor:
        return gaussian(key(torch.zeros(1, dtype=torch.long, device=like.device)), number, *like.shape[1:])
