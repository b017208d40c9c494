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

from noise2text.data.layouts.base import Canvas, Layout, Source
from noise2text.nn.denoiser import Constraint, Denoiser, DenoiserWrapper, EncoderOutput, Estimate, NoiseLevel

__all__ = ["ClassifierFreeDenoiser", "PairedConstraint", "PairedEncoderOutput"]


@dataclass(frozen=True)
class PairedEncoderOutput(EncoderOutput):
    """What is kept of the sources, and the same twice: with them, then without."""

    paired: EncoderOutput


@dataclass(frozen=True)
class PairedConstraint(Constraint):
    """What is given, and the same twice: with the source, then without."""

    paired: Constraint


class ClassifierFreeDenoiser(DenoiserWrapper):
    """A denoiser that exaggerates what the source changes; `guidance_weight` is w."""

    def __init__(self, denoiser: Denoiser, layout: Layout, guidance_weight: float) -> None:
        super().__init__(denoiser)
        self.layout, self.guidance_weight = layout, guidance_weight

    def encode(self, source: Source) -> PairedEncoderOutput:
        plain, without_source = (
            self.denoiser.encode(source),
            self.denoiser.encode(self.layout.empty_source(source)),
        )
        paired = EncoderOutput(
            states=torch.cat([plain.states, without_source.states]),
            padding=torch.cat([plain.padding, without_source.padding]),
            keys=torch.cat([plain.keys, without_source.keys], 1),  # a layer comes before a sentence
            values=torch.cat([plain.values, without_source.values], 1),
        )
        return PairedEncoderOutput(plain.states, plain.padding, plain.keys, plain.values, paired)

    def constrain(self, canvas: Canvas) -> PairedConstraint:
        plain, without_source = (
            self.denoiser.constrain(canvas),
            self.denoiser.constrain(self.layout.without_source(canvas)),
        )
        names = [field.name for field in fields(Constraint)]
        paired = Constraint(
            *(torch.cat([getattr(plain, name), getattr(without_source, name)]) for name in names)
        )
        return PairedConstraint(plain.given, plain.frozen, plain.padding, paired)

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        if not isinstance(encoded, PairedEncoderOutput) or not isinstance(constraint, PairedConstraint):
            raise TypeError("a guided denoiser takes what its own read and hold made")
        time_embedding = None if level.time_embedding is None else _repeat_batch(level.time_embedding)
        twice = NoiseLevel(
            _repeat_batch(level.alpha),
            _repeat_batch(level.sigma),
            _repeat_batch(level.timestep),
            time_embedding,
        )
        self_conditions = None if self_condition is None else torch.cat([self_condition, self_condition])
        made: Estimate = self.denoiser(
            torch.cat([z, z]), twice, encoded.paired, constraint.paired, self_conditions
        )
        (plain, without_source), hidden = made.z0.chunk(2), made.hidden.chunk(2)[0]
        return Estimate((1 + self.guidance_weight) * plain - self.guidance_weight * without_source, hidden)


def _repeat_batch(value: Tensor) -> Tensor:
    """The rows of a level twice; a level of one row is every row's."""
    return value if len(value) == 1 else torch.cat([value, value])
