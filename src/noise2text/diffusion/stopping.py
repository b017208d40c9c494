"""A stopping rule of sampling: a row is finished once its tokens are stable and sure.

A row (one candidate) is finished at the first step at which

    argmax p(y | ẑ₀) is that of the step before, and p ≥ `min_probability`, at every open position.

Its estimate stays what it was then; sampling ends when all rows are finished. Rows decide alone, so a text
does not depend on its batch, and easy texts of small batches take few steps. The rule runs between the steps,
on any device: CUDA graphs replay the steps as without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from noise2text.nn.denoiser import Estimate

__all__ = ["RoundToTokens", "StopWhenSure", "StoppingRule"]

RoundToTokens = Callable[[Estimate], tuple[Tensor, Tensor]]
"""The likeliest token at each position of an estimate, and its log-probability; both (B, L)."""


class StoppingRule(Protocol):
    """Decides after each step of one run which rows are finished."""

    def keep_finished(self, estimate: Estimate) -> Estimate:
        """The estimate of this step, but that of a finished row is still the one it finished with."""

    def is_over(self) -> bool:
        """Whether all rows are finished; the host waits for the device."""


class StopWhenSure:
    """The rows of one batch that are finished, and their estimates.

    Args:
        round_to_tokens: the tokens of an estimate and their log-probabilities.
        open_positions: (B, L), those of the canvas, which sampling fills.
        min_probability: the probability from which a token is sure, below 1.

    >>> import torch
    >>> def round_to_tokens(estimate):  # two rows of one position; only the first one is sure
    ...     return estimate.z0[..., 0].round(), torch.tensor([[0.99], [0.6]]).log()
    >>> rule = StopWhenSure(round_to_tokens, torch.ones(2, 1, dtype=torch.bool), min_probability=0.95)
    >>> for z0 in (5.1, 5.2, 8.0):
    ...     kept = rule.keep_finished(Estimate(torch.full((2, 1, 1), z0), torch.zeros(2, 1, 1)))
    >>> kept.z0.flatten(), rule.is_over()
    (tensor([5.2000, 8.0000]), False)
    """

    def __init__(
        self, round_to_tokens: RoundToTokens, open_positions: Tensor, *, min_probability: float
    ) -> None:
        self.round_to_tokens, self.open_positions = round_to_tokens, open_positions
        self.min_probability = min_probability
        self.finished = torch.zeros_like(open_positions[:, 0])  # (B,)
        self.tokens: Tensor | None = None  # (B, L), of the step before
        self.kept: Estimate | None = None

    def keep_finished(self, estimate: Estimate) -> Estimate:
        """The estimate of this step, but that of a finished row is still the one it finished with."""
        if self.kept is not None:
            done = self.finished[:, None, None]
            estimate = Estimate(
                torch.where(done, self.kept.z0, estimate.z0),
                torch.where(done, self.kept.hidden, estimate.hidden),
            )
        tokens, log_probs = self.round_to_tokens(estimate)
        if self.tokens is not None:
            settled = (tokens == self.tokens) & (log_probs.exp() >= self.min_probability)
            self.finished = self.finished | (settled | ~self.open_positions).all(1)
        self.tokens, self.kept = tokens, estimate
        return estimate

    def is_over(self) -> bool:
        """Whether all rows are finished; the host waits for the device."""
        return bool(self.finished.all())
