"""Denoising likelihood: how well a diffusion model recovers a given text from noise, in one pass.

    ℓ(y | x) = Σ_i log p(y_i | z_t, x) + log p(|y| | x),     z_t = α_t·z₀(y) + σ_t·ε

The likelihood of a diffusion model takes many passes to compute, and then only as a bound. This stands in
for it: at a time t when the words are half hidden, p(y_i | z_t, x) depends on the source and on what is
visible of the other words. The noise level is that of training, and ε at a position is the same for all
texts, so that candidates differ only in their words. It costs as much as one more sampling step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from noise2text.core.random import gaussian_noise, make_key
from noise2text.data.layouts.base import Canvas
from noise2text.diffusion.schedules import Schedule
from noise2text.generation.executor import EAGER, Executor
from noise2text.nn.denoiser import Denoiser, EncoderOutput, Estimate, NoiseLevel, split_rows

__all__ = ["NOISE_TIME", "DenoisingLikelihood"]

NOISE_TIME = 0.8
"""t, the noise level of the text. Means over several times are hardly better (docs/notebook/difformer.md)."""


@dataclass(frozen=True)
class DenoisingLikelihood:
    """Scores given texts with a denoiser."""

    denoiser: Denoiser
    schedule: Schedule  # that of training
    executor: Executor = EAGER

    @torch.inference_mode()
    def __call__(self, encoded: EncoderOutput, canvas: Canvas) -> Tensor:
        """Σ_i log p(y_i | z_t, x) of every row of a canvas of texts, (B·C,); `encoded` has B rows."""
        cache_key = ("denoising likelihood", self.denoiser, self.schedule)
        return self.executor.run(cache_key, self._log_likelihood, (encoded, canvas))[0]

    def _log_likelihood(self, inputs: tuple[EncoderOutput, Canvas]) -> tuple[Tensor]:
        encoded, canvas = inputs
        constraint = self.denoiser.constrain(canvas)
        level = self._noise_level(constraint.embeddings)
        z = level.add_noise(constraint.embeddings, _noise(constraint.embeddings))
        estimate = self.denoiser(z, level, encoded, constraint, None)
        token_log_probs = self._token_log_probs(estimate, canvas.tokens)  # (B·C, L)
        return (torch.where(canvas.scored, token_log_probs, 0.0).sum(1),)

    def _token_log_probs(self, estimate: Estimate, tokens: Tensor) -> Tensor:
        """The log-probabilities of these tokens (B·C, L)."""
        found = []
        for part, own in split_rows(estimate, tokens, vocabulary=len(self.denoiser.embedding.weight)):
            logits = self.denoiser.logits(part).float()
            found.append(logits.gather(-1, own[..., None])[..., 0] - logits.logsumexp(-1))
        return torch.cat(found)

    def _noise_level(self, like: Tensor) -> NoiseLevel:
        """The noise level of the texts, computed on their device, so that a CUDA graph can contain it."""
        time = torch.full((1,), NOISE_TIME, dtype=torch.float64, device=like.device)
        level: NoiseLevel = self.schedule(time, like.shape[1])
        return NoiseLevel(*(part.to(like) for part in (level.alpha, level.sigma, level.timestep)))


def _noise(like: Tensor) -> Tensor:
    """The noise that all texts share, (1, L, D)."""
    return gaussian_noise(make_key(torch.zeros(1, dtype=torch.long, device=like.device)), 0, *like.shape[1:])
