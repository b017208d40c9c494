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
from noise2text.data.layouts.template import OPEN, Template
from noise2text.generation.config import DiffusionSettings
from noise2text.generation.parallel import Course, Parallel, Propose

__all__ = ["Growing", "open_places"]


@dataclass(frozen=True)
class Growing(Parallel, ABC):
    """Decoding by several walks, each of which leaves a part of the text behind."""

    @abstractmethod
    def part(self, canvas: Canvas, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Which written tokens (B·C, L) are kept, one a row at least; and which rows (B·C,) end."""

    def grow(self, canvas: Canvas, tokens: Tensor, kept: Tensor, over: Tensor) -> Canvas:
        """The canvas with the kept tokens held, and nothing left to write on the rows that are over."""
        written = torch.where(kept, tokens, canvas.tokens)
        return replace(canvas, tokens=written, frozen=canvas.frozen | kept | over[:, None])

    @torch.inference_mode()
    def course(
        self,
        source: Source,
        how: DiffusionSettings,
        propose: Propose,
        *,
        given: Template = OPEN,
        seed: int,
        places: Tensor,
        trace: bool = False,
    ) -> Course:
        """The drafts of each sentence; a trace has the steps of all the walks, one after another."""
        prompt = yield from self._prompt(source, how, propose, given=given, seed=seed, places=places)
        canvas, steps, number = prompt.spread(), [], 0
        total = torch.zeros_like(prompt.scores)
        count = torch.zeros_like(total)
        while bool(open_places(canvas).any()):  # the host waits once a walk
            for state in self._walk(prompt, canvas, how, seed=seed, through=not trace, number=number):
                if trace:
                    rounded = self._round(canvas, state.estimate)[0]
                    steps.append((state.time, self.denoiser.space.nearest(state.z), rounded))
            tokens, scores = self._round(canvas, state.estimate)  # (B·C, L)
            kept, over = self.part(canvas, tokens)
            total, count = total + (scores * kept).sum(1), count + kept.sum(1)
            canvas, number = self.grow(canvas, tokens, kept, over), number + 1
        scores = total / count + prompt.scores
        drafts = yield from self._drafts(prompt, canvas, canvas.tokens, scores, steps)
        return drafts


def open_places(canvas: Canvas) -> Tensor:
    """Where something is left to write, (B·C, L)."""
    return ~(canvas.frozen | canvas.padding)
