"""Training token by token: −log p(yᵢ | y₁ … yᵢ₋₁, x), label-smoothed, at every place of the target at once.

The true past is given at every place (teacher forcing), so nothing is left to chance but dropout.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from noise2text.data.layouts.canvas import Canvas
from noise2text.diffusion.losses import Anchor, Nll, Tally
from noise2text.nn.denoiser import Memory
from noise2text.nn.incremental_decoder import Writer, shifted
from noise2text.training.objective import Objective

__all__ = ["NextToken"]


@dataclass(frozen=True)
class _Spelled:
    """How surprised a writer is at the tokens of a canvas."""

    surprises: tuple[Tensor, Tensor]  # (B, L) each


class NextToken(Objective):
    """The label-smoothed surprise at each next token; the plain one is watched."""

    def __init__(self, writer: Writer, *, bos: int, label_smoothing: float) -> None:
        smoothed, plain = Anchor(smoothing=label_smoothing), Nll()
        super().__init__({"smoothed": smoothed, "nll": plain}, {"smoothed": 1.0}, always=["nll"])
        self.writer, self.bos = writer, bos
        self.recordable = writer.recordable
        self.tokens_of = {"smoothed": smoothed, "nll": plain}

    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> None:
        """Nothing."""

    def forward(self, canvas: Canvas, draws: None) -> dict[str, Tally]:
        return self.spell(canvas, self.writer.read(canvas.source))

    def spell(self, canvas: Canvas, memory: Memory) -> dict[str, Tally]:
        """The terms of a target that is written with this memory of its source."""
        scores = self.writer.scores(shifted(canvas.tokens, self.bos), memory)
        spelled = _Spelled(self.spelling(scores, canvas.tokens))
        return {name: Tally(term.value(spelled), term.mask(canvas)) for name, term in self.tokens_of.items()}
