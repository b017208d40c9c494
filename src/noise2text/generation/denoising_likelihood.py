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

from noise2text.core.random import gaussian_noise, make_key
from noise2text.data.layouts.base import Canvas
from noise2text.generation.runner import EAGER, Runner
from noise2text.nn.denoiser import Denoiser, EncoderOutput, Estimate, NoiseLevel, rows_per_chunk

__all__ = ["NOISE_TIME", "DenoisingLikelihood"]

NOISE_TIME = 0.8
"""t: when a text is looked at. Looks at several times are hardly better (docs/difformer.md)."""


@dataclass(frozen=True)
class DenoisingLikelihood:
    """A denoiser as a judge of given texts."""

    denoiser: Denoiser
    schedule: nn.Module  # that of training
    runner: Runner = EAGER

    @torch.inference_mode()
    def __call__(self, encoded: EncoderOutput, canvas: Canvas) -> Tensor:
        """Σ_i log p(y_i | z_t, x) of every row of a canvas of texts, (B·C,); the memory has B rows."""
        name = ("denoising likelihood", self.denoiser, self.schedule)
        return self.runner.run(name, self._log_likelihood, (encoded, canvas))[0]

    def _log_likelihood(self, inputs: tuple[EncoderOutput, Canvas]) -> tuple[Tensor]:
        encoded, canvas = inputs
        constraint = self.denoiser.constrain(canvas)
        level = self._noise_level(constraint.given)
        z = level.alpha * constraint.given + level.sigma * _noise(constraint.given)
        token_log_probs = self._token_log_probs(
            self.denoiser(z, level, encoded, constraint, None), canvas.tokens
        )  # (B·C, L)
        return (torch.where(canvas.scored, token_log_probs, 0.0).sum(1),)

    def _token_log_probs(self, estimate: Estimate, tokens: Tensor) -> Tensor:
        """The log-probabilities of these tokens (B·C, L)."""
        size, found = rows_per_chunk(estimate, len(self.denoiser.embedding.weight)), []
        parts = (each.split(size) for each in (estimate.z0, estimate.hidden, tokens))
        for z0, hidden, targets in zip(*parts, strict=True):
            logits = self.denoiser.logits(Estimate(z0, hidden)).float()
            found.append(logits.gather(-1, targets[..., None])[..., 0] - logits.logsumexp(-1))
        return torch.cat(found)

    def _noise_level(self, like: Tensor) -> NoiseLevel:
        """How noisy the texts are looked at; made where they are, so that it can be recorded."""
        time = torch.full((1,), NOISE_TIME, dtype=torch.float64, device=like.device)
        level: NoiseLevel = self.schedule(time, like.shape[1])
        return NoiseLevel(*(part.to(like) for part in (level.alpha, level.sigma, level.timestep)))


def _noise(like: Tensor) -> Tensor:
    """The noise of every text, (1, L, D)."""
    return gaussian_noise(make_key(torch.zeros(1, dtype=torch.long, device=like.device)), 0, *like.shape[1:])
