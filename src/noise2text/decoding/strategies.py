"""What to walk: 2D parallel decoding (Difformer, section 3.3).

A sentence is tried at b₁ lengths, each from b₂ noises; all candidates of all sentences of a batch go down
together, and share their sentence's encoding. The host waits once, for the longest length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noise2text.decoding.settings import DiffusionSettings
from noise2text.diffusion.denoiser import Denoiser, Estimate, Memory
from noise2text.diffusion.noise import key
from noise2text.diffusion.walk import strided, walk
from noise2text.text.canvas import Canvas, Layout, Source

__all__ = ["Draft", "Parallel", "Propose", "Step"]

Rows = list[list[int]]
Propose = Callable[[Memory], tuple[Tensor, Tensor]]
"""The lengths (B, b₁) to try for each sentence, and their log-probabilities."""
Given = tuple[Sequence[int], Sequence[int]]
"""The tokens that every target begins and ends with."""


@dataclass(frozen=True)
class Step:
    """A sentence's candidates at one time: the noisy canvas and its clean estimate, both rounded."""

    time: float
    noisy: Rows
    clean: Rows


@dataclass(frozen=True)
class Draft:
    """A sentence's candidates: tokens and score, best length first; and the steps there, if traced."""

    tokens: Rows
    scores: list[float]
    steps: list[Step]


@dataclass(frozen=True)
class Parallel:
    """The parts of a diffusion system that decode all candidates at once."""

    denoiser: Denoiser
    schedule: nn.Module
    layout: Layout
    resolution: int
    forbidden: Tensor  # (V,), tokens that are never written

    @torch.inference_mode()
    def decode(
        self,
        source: Source,
        how: DiffusionSettings,
        propose: Propose,
        *,
        given: Given = ((), ()),
        seed: int,
        places: Tensor,
        trace: bool = False,
    ) -> list[Draft]:
        """The drafts of each sentence; `places` (B,) is where the sentences stand in the input."""
        memory = self.denoiser.read(source)
        lengths, length_scores = propose(memory)
        lengths = lengths.clamp(min=sum(map(len, given)) + 1)
        offsets = lengths - (~source.padding).sum(1, keepdim=True)  # (B, b₁)
        noises = torch.arange(how.noise_beam, device=lengths.device)
        keys = key(seed, places[:, None, None], offsets[:, :, None], noises).flatten()  # (B·b₁·b₂,)
        wished = lengths.repeat_interleave(how.noise_beam, dim=1)
        canvas = self.layout.give(self.layout.prompt(source, wished, width=int(lengths.max())), *given)
        times = strided(how.steps, resolution=self.resolution, stop_early=how.stop_early)
        steps = []
        held = self.denoiser.hold(canvas)
        for state in walk(self.denoiser, self.schedule, memory, held, keys, times, fresh=how.fresh(seed)):
            if trace:
                rounded = self._round(canvas, state.estimate)[0]
                steps.append((state.time, self.denoiser.space.nearest(state.z), rounded))
        tokens, scores = self._round(canvas, state.estimate)  # (B·C, L)
        kept = ~(canvas.padding | canvas.frozen)
        score = (scores * kept).sum(1) / kept.sum(1) + length_scores.repeat_interleave(
            how.noise_beam, dim=1
        ).flatten()
        sentences = len(source.tokens)
        rows = self._read(canvas, tokens)
        traced = [
            (time, self._read(canvas, noisy), self._read(canvas, clean)) for time, noisy, clean in steps
        ]
        return [
            Draft(rows[i], scored, [Step(time, noisy[i], clean[i]) for time, noisy, clean in traced])
            for i, scored in enumerate(score.view(sentences, -1).tolist())
        ]

    def _read(self, canvas: Canvas, tokens: Tensor) -> list[Rows]:
        """The rows of each sentence's candidates."""
        rows, sentences = self.layout.read(canvas, tokens), len(canvas.source.tokens)
        size = len(rows) // sentences
        return [rows[i * size : (i + 1) * size] for i in range(sentences)]

    def _round(self, canvas: Canvas, estimate: Estimate) -> tuple[Tensor, Tensor]:
        """The likeliest token at each position, the given one where it is frozen, and its log-probability."""
        logits = self.denoiser.logits(estimate).float().masked_fill(self.forbidden, -torch.inf)
        best = logits.max(-1)
        tokens = torch.where(canvas.frozen, canvas.tokens, best.indices)
        return tokens, best.values - logits.logsumexp(-1)
