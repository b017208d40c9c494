"""Classifier-free guidance (Ho and Salimans, 2022; Demirag, 2023, algorithm 4): amplify the source.

    ẑ₀ = (1 + w)·ẑ₀(z_t, source) − w·ẑ₀(z_t, nothing)

The factors sum to 1, so the same equation holds for ε, the score and the mean: each of them is a fixed linear
combination of z_t and ẑ₀. (Demirag's (1 − γ) and −γ sum to 1 − 2γ.) w = 0 is the plain model, which
Demirag calls strength 1: w is the strength minus 1. The two branches go through the network in one batch,
with and without the source, on the canvas or in the encoder. `training/source_dropout.py` trains for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from noise2text.data.layouts.base import Canvas, Layout, Source
from noise2text.nn.denoiser import Constraint, Denoiser, DenoiserWrapper, EncoderOutput, Estimate, NoiseLevel

__all__ = ["ClassifierFreeDenoiser", "PairedConstraint", "PairedEncoderOutput"]


@dataclass(frozen=True)
class PairedEncoderOutput(EncoderOutput):
    """The encoder output, and `paired`: the rows with the source, then the rows without."""

    paired: EncoderOutput

    def select(self, rows: Tensor) -> PairedEncoderOutput:
        plain, rows = super().select(rows), rows.to(self.padding.device)
        paired = self.paired.select(torch.cat([rows, rows + len(self.padding)]))
        return PairedEncoderOutput(plain.states, plain.padding, plain.keys, plain.values, paired)


@dataclass(frozen=True)
class PairedConstraint(Constraint):
    """The constraint, and `paired`: the rows with the source, then the rows without."""

    paired: Constraint

    @classmethod
    def pair(cls, plain: Constraint, without_source: Constraint) -> PairedConstraint:
        """The constraint of rows with the source, and of the same rows without."""
        paired = Constraint.join([plain, without_source])
        return cls(plain.embeddings, plain.given, plain.padding, paired)

    @classmethod
    def join(cls, parts: Sequence[Constraint]) -> PairedConstraint:
        without_source = [each._without_source() for each in parts if isinstance(each, PairedConstraint)]
        return cls.pair(super().join(parts), super().join(without_source))

    def select(self, rows: Tensor) -> PairedConstraint:
        return self.pair(super().select(rows), self._without_source().select(rows))

    def _without_source(self) -> Constraint:
        count = len(self.padding)
        return self.paired.select(torch.arange(count, 2 * count))


class ClassifierFreeDenoiser(DenoiserWrapper):
    """A denoiser that amplifies the effect of the source; `guidance_weight` is w."""

    def __init__(self, denoiser: Denoiser, layout: Layout, guidance_weight: float) -> None:
        super().__init__(denoiser)
        self.layout, self.guidance_weight = layout, guidance_weight

    def encode(self, source: Source) -> PairedEncoderOutput:
        plain = self.denoiser.encode(source)
        without_source = self.denoiser.encode(self.layout.empty_source(source))
        paired = EncoderOutput(
            states=torch.cat([plain.states, without_source.states]),
            padding=torch.cat([plain.padding, without_source.padding]),
            keys=torch.cat([plain.keys, without_source.keys], 1),  # (layers, B, …)
            values=torch.cat([plain.values, without_source.values], 1),
        )
        return PairedEncoderOutput(plain.states, plain.padding, plain.keys, plain.values, paired)

    def constrain(self, canvas: Canvas) -> PairedConstraint:
        plain = self.denoiser.constrain(canvas)
        return PairedConstraint.pair(plain, self.denoiser.constrain(self.layout.without_source(canvas)))

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        if not isinstance(encoded, PairedEncoderOutput) or not isinstance(constraint, PairedConstraint):
            raise TypeError(
                "A ClassifierFreeDenoiser needs the outputs of its own encode and constrain methods."
            )
        time_embedding = None if level.time_embedding is None else _repeat_batch(level.time_embedding)
        twice = NoiseLevel(
            _repeat_batch(level.alpha),
            _repeat_batch(level.sigma),
            _repeat_batch(level.timestep),
            time_embedding,
        )
        self_conditions = None if self_condition is None else torch.cat([self_condition, self_condition])
        both: Estimate = self.denoiser(
            torch.cat([z, z]), twice, encoded.paired, constraint.paired, self_conditions
        )
        (plain, without_source), hidden = both.z0.chunk(2), both.hidden.chunk(2)[0]
        return Estimate((1 + self.guidance_weight) * plain - self.guidance_weight * without_source, hidden)


def _repeat_batch(value: Tensor) -> Tensor:
    """The rows twice; a single row stands for all rows and stays as it is."""
    return value if len(value) == 1 else torch.cat([value, value])
