"""Classifier-free guidance (Ho and Salimans, 2022; thesis, algorithm 4): away from what needs no source.

    ẑ₀ = (1 + w)·ẑ₀(z_t, source) − w·ẑ₀(z_t, nothing)

The factors sum to 1, so the same line holds for ε, the score and the mean, each of which is z_t and ẑ₀ in
fixed shares. (The thesis's (1 − γ) and −γ sum to 1 − 2γ.) w = 0 is the plain model; the thesis calls that
strength 1, so w is its strength less 1. The two branches go through the network in one batch, each with its
own source, on the canvas or in the encoder.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from noise2text.data.layouts.canvas import Canvas, Layout, Source
from noise2text.nn.denoiser import Denoiser, Estimate, Held, Level, Memory, Wrapped

__all__ = ["Guided", "TwinHeld", "TwinMemory"]


@dataclass(frozen=True)
class TwinMemory(Memory):
    """What is kept of the sources, and the same twice: with them, then without."""

    both: Memory


@dataclass(frozen=True)
class TwinHeld(Held):
    """What is given, and the same twice: with the source, then without."""

    both: Held


class Guided(Wrapped):
    """A denoiser that exaggerates what the source changes; `weight` is w."""

    def __init__(self, denoiser: Denoiser, layout: Layout, weight: float) -> None:
        super().__init__(denoiser)
        self.layout, self.weight = layout, weight

    def read(self, source: Source) -> TwinMemory:
        plain, blank = self.denoiser.read(source), self.denoiser.read(self.layout.silent(source))
        both = Memory(
            states=torch.cat([plain.states, blank.states]),
            padding=torch.cat([plain.padding, blank.padding]),
            keys=torch.cat([plain.keys, blank.keys], 1),  # a layer comes before a sentence
            values=torch.cat([plain.values, blank.values], 1),
        )
        return TwinMemory(plain.states, plain.padding, plain.keys, plain.values, both)

    def hold(self, canvas: Canvas) -> TwinHeld:
        plain, blank = self.denoiser.hold(canvas), self.denoiser.hold(self.layout.blank(canvas))
        names = [field.name for field in fields(Held)]
        both = Held(*(torch.cat([getattr(plain, name), getattr(blank, name)]) for name in names))
        return TwinHeld(plain.given, plain.frozen, plain.padding, both)

    def forward(self, z: Tensor, level: Level, memory: Memory, held: Held, guess: Tensor | None) -> Estimate:
        if not isinstance(memory, TwinMemory) or not isinstance(held, TwinHeld):
            raise TypeError("a guided denoiser takes what its own read and hold made")
        ticks = None if level.ticks is None else _twice(level.ticks)
        twice = Level(_twice(level.alpha), _twice(level.sigma), _twice(level.clock), ticks)
        guesses = None if guess is None else torch.cat([guess, guess])
        made: Estimate = self.denoiser(torch.cat([z, z]), twice, memory.both, held.both, guesses)
        (plain, blank), hidden = made.mean.chunk(2), made.hidden.chunk(2)[0]
        return Estimate((1 + self.weight) * plain - self.weight * blank, hidden)


def _twice(value: Tensor) -> Tensor:
    """The rows of a level twice; a level of one row is every row's."""
    return value if len(value) == 1 else torch.cat([value, value])
