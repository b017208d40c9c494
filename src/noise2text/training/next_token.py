"""Training token by token: −log p(yᵢ | y₁ … yᵢ₋₁, x), label-smoothed, at every place of the target at once.

The true past is given at every place (teacher forcing), so nothing is left to chance but dropout.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from noise2text.diffusion.denoiser import Memory
from noise2text.diffusion.losses import Anchor, Nll, Tally
from noise2text.networks.writer import Writer, shifted
from noise2text.text.canvas import Canvas
from noise2text.training.objective import Objective

__all__ = ["NextToken"]


@dataclass(frozen=True)
class _Spelled:
    """A canvas and the writer's scores for it."""

    canvas: Canvas
    logits: Tensor  # (B, L, V)

    @cached_property
    def log_probabilities(self) -> Tensor:
        return self.logits.float().log_softmax(-1)


class NextToken(Objective):
    """The label-smoothed surprise at each next token; the plain one is watched."""

    def __init__(self, writer: Writer, *, bos: int, label_smoothing: float) -> None:
        smoothed, plain = Anchor(smoothing=label_smoothing), Nll()
        super().__init__({"smoothed": smoothed, "nll": plain}, {"smoothed": 1.0})
        self.writer, self.bos = writer, bos
        self.tokens_of = {"smoothed": smoothed, "nll": plain}

    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> None:
        """Nothing."""

    def forward(self, canvas: Canvas, draws: None) -> dict[str, Tally]:
        return self.spell(canvas, self.writer.read(canvas.source))

    def spell(self, canvas: Canvas, memory: Memory) -> dict[str, Tally]:
        """The terms of a target that is written with this memory of its source."""
        spelled = _Spelled(canvas, self.writer(shifted(canvas.tokens, self.bos), memory))
        return {name: Tally(term.value(spelled), term.mask(canvas)) for name, term in self.tokens_of.items()}
