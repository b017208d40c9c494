"""Training token by token: −log p(yᵢ | y₁ … yᵢ₋₁, x), label-smoothed, at every place of the target at once.

The true past is given at every place (teacher forcing), so nothing is left to chance but dropout.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from noise2text.data.layouts.base import Canvas
from noise2text.diffusion.losses import AnchorLoss, NllLoss, TokenLoss
from noise2text.nn.autoregressive import AutoregressiveNetwork, shift_right
from noise2text.nn.denoiser import EncoderOutput
from noise2text.training.objective import Objective

__all__ = ["NextTokenObjective"]


@dataclass(frozen=True)
class _TokenNll:
    """How surprised a writer is at the tokens of a canvas."""

    token_nll: tuple[Tensor, Tensor]  # (B, L) each


class NextTokenObjective(Objective):
    """The label-smoothed surprise at each next token; the plain one is watched."""

    def __init__(self, network: AutoregressiveNetwork, *, bos: int, label_smoothing: float) -> None:
        label_smoothed, nll = AnchorLoss(smoothing=label_smoothing), NllLoss()
        super().__init__({"smoothed": label_smoothed, "nll": nll}, {"smoothed": 1.0}, always_computed=["nll"])
        self.network, self.bos = network, bos
        self.graph_capturable = network.graph_capturable
        self.token_terms = {"smoothed": label_smoothed, "nll": nll}

    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> None:
        """Nothing."""

    def forward(self, canvas: Canvas, draws: None) -> dict[str, TokenLoss]:
        return self.compute_losses(canvas, self.network.encode(canvas.source))

    def compute_losses(self, canvas: Canvas, encoded: EncoderOutput) -> dict[str, TokenLoss]:
        """The terms of a target that is written with this memory of its source."""
        lazy_logits = self.network.lazy_logits(shift_right(canvas.tokens, self.bos), encoded)
        token_nll = _TokenNll(self.token_nll(lazy_logits, canvas.tokens))
        return {
            name: TokenLoss(term.value(token_nll), term.mask(canvas))
            for name, term in self.token_terms.items()
        }
