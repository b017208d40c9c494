"""The canvas of Difformer's released code: fairseq's begin and end around the source and the target.

    encoder: <s> source </s>        canvas: <s> target </s>

Both tokens of the target are noised, denoised and scored like the others. Lengths are those of the texts
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from noise2text.data.layouts.base import Canvas, Source, give_tokens
from noise2text.data.layouts.split import SplitLayout
from noise2text.data.layouts.template import Template
from noise2text.data.ragged import RaggedRows

__all__ = ["ReleasedDifformerLayout"]


@dataclass(frozen=True)
class ReleasedDifformerLayout(SplitLayout):
    """Source and target apart, each between a begin and an end token; the length is given."""

    num_special_tokens: ClassVar[int] = 2

    bos: int
    eos: int

    @property
    def surrounding_tokens(self) -> tuple[int, ...]:
        return self.bos, self.eos

    def make_source(self, rows: RaggedRows, *, width: int = 0) -> Source:
        return super().make_source(self._surround(rows), width=width + self.num_special_tokens)

    def make_canvas(
        self, sources: RaggedRows, targets: RaggedRows, *, shape: tuple[int, int] = (0, 0)
    ) -> Canvas:
        """The canvas of training pairs, two positions wider than the targets."""
        wider = shape[0], shape[1] + self.num_special_tokens
        return super().make_canvas(sources, self._surround(targets), shape=wider)

    def make_empty_canvas(self, source: Source, lengths: Tensor, *, width: int) -> Canvas:
        added = self.num_special_tokens
        return super().make_empty_canvas(source, lengths + added, width=width + added)

    def apply_template(self, canvas: Canvas, template: Template) -> Canvas:
        if not template.num_given:
            return canvas
        lengths = (~canvas.padding).sum(1) - self.num_special_tokens
        for piece, start in template.locate_pieces(lengths):
            canvas = give_tokens(canvas, piece, start + 1)
        return canvas

    def extract_targets(self, canvas: Canvas, tokens: Tensor) -> list[list[int]]:
        return [row[1:-1] for row in super().extract_targets(canvas, tokens)]

    def locate_targets(self, canvas: Canvas, tokens: Tensor) -> list[slice]:
        return [slice(1, 1 + len(row)) for row in self.extract_targets(canvas, tokens)]

    def target_mask(self, canvas: Canvas) -> Tensor:
        mask = super().target_mask(canvas).clone()
        mask[:, 0] = False  # the begin token
        return mask

    def _surround(self, rows: RaggedRows) -> RaggedRows:
        return rows.surround((self.bos,), (self.eos,))
