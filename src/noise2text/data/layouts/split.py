"""Source and target apart: the encoder reads the source, diffusion fills the target (Difformer)."""

from __future__ import annotations

import torch
from torch import Tensor

from noise2text.data.layouts.base import Canvas, Layout, Source, give_tokens
from noise2text.data.layouts.template import Template
from noise2text.data.ragged import RaggedRows

__all__ = ["SplitLayout"]


class SplitLayout(Layout):
    """Source and target apart, as encoder-decoders need them; the length is given."""

    @property
    def surrounding_tokens(self) -> tuple[int, ...]:
        """The special tokens around a target, which are generated with it."""
        return ()

    def make_canvas(
        self, sources: RaggedRows, targets: RaggedRows, *, shape: tuple[int, int] = (0, 0)
    ) -> Canvas:
        tokens, padding = targets.pad_to(shape[1], pad=self.pad)
        return Canvas(
            tokens=tokens,
            given=torch.zeros_like(padding),
            padding=padding,
            scored=~padding,
            source=self.make_source(sources, width=shape[0]),
        )

    def make_empty_canvas(self, source: Source, lengths: Tensor, *, width: int) -> Canvas:
        positions = torch.arange(width, device=lengths.device)
        padding = positions >= lengths.reshape(-1, 1)  # (B·C, L)
        return Canvas(
            tokens=torch.full_like(padding, self.pad, dtype=torch.long),
            given=torch.zeros_like(padding),
            padding=padding,
            scored=~padding,
            source=source,
        )

    def apply_template(self, canvas: Canvas, template: Template) -> Canvas:
        if not template.num_given:
            return canvas
        for piece, start in template.locate_pieces((~canvas.padding).sum(1)):
            canvas = give_tokens(canvas, piece, start)
        return canvas

    def extract_targets(self, canvas: Canvas, tokens: Tensor) -> list[list[int]]:
        rows, lengths = tokens.tolist(), (~canvas.padding).sum(1).tolist()
        return [row[:length] for row, length in zip(rows, lengths, strict=True)]
