"""Rounding (Diffusion-LM, section 4.2): from the estimate of a sampling step to tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from noise2text.data.layouts.base import Canvas, Layout
from noise2text.diffusion.sampler import SampledStep
from noise2text.generation.decoder import TokenTraceStep
from noise2text.nn.denoiser import Denoiser, Estimate, split_rows

__all__ = ["RoundedStep", "Rounding"]


@dataclass(frozen=True)
class RoundedStep:
    """A `SampledStep` rounded to tokens, for a trace; the confidence is the probability of the clean ones."""

    time: float
    noisy: Tensor  # (B·C, L)
    clean: Tensor  # (B·C, L)
    confidence: Tensor  # (B·C, L)

    def split(self, layout: Layout, canvas: Canvas) -> list[TokenTraceStep]:
        """The step of each sentence of a canvas on the host, as lists."""
        clean = self.clean.cpu()
        spans = layout.locate_targets(canvas, clean)
        noisy_rows = layout.extract_targets(canvas, self.noisy.cpu())
        clean_rows = layout.extract_targets(canvas, clean)
        confidence = [row[span] for row, span in zip(self.confidence.tolist(), spans, strict=True)]
        size = len(clean_rows) // len(canvas.source.tokens)  # the candidates of a sentence
        return [
            TokenTraceStep(
                self.time, noisy_rows[i : i + size], clean_rows[i : i + size], confidence[i : i + size]
            )
            for i in range(0, len(clean_rows), size)
        ]


@dataclass(frozen=True)
class Rounding:
    """Takes the likeliest token at each position, among those that may be written there."""

    denoiser: Denoiser
    forbidden_mask: Tensor  # (V,), True for tokens that are never written
    special_tokens: Tensor  # (S,), ids of those that can end a text: all special tokens but the first one

    def __call__(self, canvas: Canvas, estimate: Estimate) -> tuple[Tensor, Tensor]:
        """The likeliest token at each position, or the given one, and its log-probability; both (B·C, L)."""
        tokens, log_probs = self._take_likeliest(estimate, _before_given(canvas))
        return torch.where(canvas.given, canvas.tokens, tokens), log_probs

    def round_rows(self, canvas: Canvas, estimate: Estimate, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The same for the estimate (R, L) of some rows, but only open positions are computed.

        The log-probability of the others is 0. The host waits for the device once.
        """
        is_open, inner = canvas.open_positions[rows], _before_given(canvas)[rows]
        at = is_open.flatten().nonzero()[:, 0]
        z0, hidden, inner = (
            each.flatten(0, 1)[at][:, None] for each in (estimate.z0, estimate.hidden, inner)
        )
        tokens, log_probs = self._take_likeliest(Estimate(z0, hidden), inner)
        return (
            canvas.tokens[rows].masked_scatter(is_open, tokens),
            torch.zeros(is_open.shape, device=is_open.device).masked_scatter(is_open, log_probs),
        )

    def _take_likeliest(self, estimate: Estimate, inner: Tensor) -> tuple[Tensor, Tensor]:
        """The likeliest token at each position, and its log-probability; at inner ones no text can end."""
        tokens, log_probs = [], []
        for part, within in split_rows(estimate, inner, vocabulary=len(self.forbidden_mask)):
            logits = self.denoiser.logits(part).float()
            logits.masked_fill_(self.forbidden_mask, -torch.inf)
            ends = logits[..., self.special_tokens].masked_fill(within[..., None], -torch.inf)
            logits[..., self.special_tokens] = ends
            best = logits.max(-1)
            tokens.append(best.indices)
            log_probs.append(best.values - logits.logsumexp(-1))
        return torch.cat(tokens), torch.cat(log_probs)

    def round_step(self, canvas: Canvas, step: SampledStep) -> RoundedStep:
        """A sampling step, rounded: its noisy state to the nearest embeddings, its estimate to tokens."""
        clean, scores = self(canvas, step.estimate)
        confidence = scores.exp().masked_fill(canvas.given, 1.0)
        return RoundedStep(step.time, self.denoiser.embedding.nearest(step.z), clean, confidence)


def _before_given(canvas: Canvas) -> Tensor:
    """Which positions (B·C, L) are before given tokens, where a text cannot end."""
    return canvas.given.flip(1).cumsum(1).flip(1) > 0
