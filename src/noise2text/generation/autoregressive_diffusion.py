"""From left to right with a model that writes all at once (thesis on DiffuSeq for translation, 3.2).

    t ← ε;   until the end:  walk from noise with source and t held,  t ← t ⊕ the first of what was written

What is held grows, the shape stays. A part of the canvas that was written once is given from then on, so it
never changes. A row has ended when nothing on it is left to write; the last row's end is the end (algorithm 8
goes on to the brim). Each walk has its own noise, the first that of parallel decoding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from noise2text.data.layouts.canvas import Canvas, Source
from noise2text.data.layouts.template import OPEN_TEMPLATE, Template
from noise2text.generation.config import DiffusionGenerationConfig
from noise2text.generation.parallel import DecodingCoroutine, ParallelDecoder, ProposeLengths

__all__ = ["AutoregressiveDiffusionDecoder", "open_positions"]


@dataclass(frozen=True)
class AutoregressiveDiffusionDecoder(ParallelDecoder, ABC):
    """Decoding by several walks, each of which leaves a part of the text behind."""

    @abstractmethod
    def select_new_tokens(self, canvas: Canvas, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Which written tokens (B·C, L) are kept, one a row at least; and which rows (B·C,) end."""

    def fix_tokens(self, canvas: Canvas, tokens: Tensor, kept: Tensor, finished: Tensor) -> Canvas:
        """The canvas with the kept tokens held, and nothing left to write on the rows that are over."""
        written = torch.where(kept, tokens, canvas.tokens)
        return replace(canvas, tokens=written, frozen=canvas.frozen | kept | finished[:, None])

    @torch.inference_mode()
    def course(
        self,
        source: Source,
        config: DiffusionGenerationConfig,
        propose: ProposeLengths,
        *,
        given: Template = OPEN_TEMPLATE,
        seed: int,
        indices: Tensor,
        trace: bool = False,
    ) -> DecodingCoroutine:
        """The drafts of each sentence; a trace has the steps of all the walks, one after another."""
        prompt = yield from self._prepare_batch(
            source, config, propose, given=given, seed=seed, indices=indices
        )
        canvas, steps, number = prompt.device_canvas(), [], 0
        total = torch.zeros_like(prompt.scores)
        count = torch.zeros_like(total)
        while bool(open_positions(canvas).any()):  # the host waits once a walk
            for state in self._sample(prompt, canvas, config, seed=seed, last_only=not trace, number=number):
                if trace:
                    rounded = self._round_to_tokens(canvas, state.estimate)[0]
                    steps.append((state.time, self.denoiser.embedding.nearest(state.z), rounded))
            tokens, scores = self._round_to_tokens(canvas, state.estimate)  # (B·C, L)
            kept, finished = self.select_new_tokens(canvas, tokens)
            total, count = total + (scores * kept).sum(1), count + kept.sum(1)
            canvas, number = self.fix_tokens(canvas, tokens, kept, finished), number + 1
        scores = total / count + prompt.scores
        decoded = yield from self._collect_candidates(prompt, canvas, canvas.tokens, scores, steps)
        return decoded


def open_positions(canvas: Canvas) -> Tensor:
    """Where something is left to write, (B·C, L)."""
    return ~(canvas.frozen | canvas.padding)
