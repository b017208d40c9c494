"""A stopping rule of sampling: a row is finished once its tokens are stable and sure.

A row (one candidate) is finished at the first step at which

    argmax p(y | ẑ₀) is that of the step before, and p ≥ `min_probability`, at every position that it writes.

Its estimate stays what it was then; sampling ends when all rows are finished. Rows decide alone, so a text
does not depend on its batch. Where the rows of a batch may change, finished ones leave the network
(`running_rows.py`), so easy texts take few steps also in large batches. With CUDA graphs they stay, and the
rule runs between the replayed steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from noise2text.nn.denoiser import Estimate

__all__ = ["RoundToTokens", "StopWhenSure", "StoppingRule"]

RoundToTokens = Callable[[Estimate, Tensor], tuple[Tensor, Tensor]]
"""The likeliest token at each position of the rows of these numbers, and its log-probability; both (B, L)."""


class StoppingRule(Protocol):
    """Decides after each step of one run which rows are finished."""

    @property
    def running(self) -> Tensor:
        """(B,), which rows are not finished."""

    def keep_finished(self, estimate: Estimate) -> Estimate:
        """The estimate of this step, but that of a finished row is still the one it finished with.

        The host may wait for the device.
        """

    def is_over(self) -> bool:
        """Whether all rows are finished; the host waits for the device."""


class StopWhenSure:
    """The rows of one batch that are finished, and their estimates.

    Args:
        round_to_tokens: the tokens of an estimate and their log-probabilities.
        open_positions: (B, L), the positions that sampling fills in.
        min_probability: the probability from which a token is sure, below 1.

    >>> import torch
    >>> def round_to_tokens(estimate, rows):  # two rows of one position; only the first one is sure
    ...     return estimate.z0[..., 0].round(), torch.tensor([[0.99], [0.6]])[rows].log()
    >>> rule = StopWhenSure(round_to_tokens, torch.ones(2, 1, dtype=torch.bool), min_probability=0.95)
    >>> for z0 in (5.1, 5.2, 8.0):
    ...     kept = rule.keep_finished(Estimate(torch.full((2, 1, 1), z0), torch.zeros(2, 1, 1)))
    >>> kept.z0.flatten(), rule.running, rule.is_over()
    (tensor([5.2000, 8.0000]), tensor([False,  True]), False)
    """

    def __init__(
        self, round_to_tokens: RoundToTokens, open_positions: Tensor, *, min_probability: float
    ) -> None:
        self.round_to_tokens, self.min_probability = round_to_tokens, min_probability
        self.open_positions = open_positions
        self.running = torch.ones_like(open_positions[:, 0])  # (B,)
        self.tokens: Tensor | None = None  # (B, L), of the last step that each row took
        self.kept: Estimate | None = None  # the same

    def keep_finished(self, estimate: Estimate) -> Estimate:
        """The estimate of this step, but that of a finished row is still the one it finished with."""
        rows = self.running.nonzero()[:, 0]
        own = estimate.select(rows)
        tokens, log_probs = self.round_to_tokens(own, rows)
        if self.kept is None or self.tokens is None:
            self.kept, self.tokens = own, tokens
        else:
            settled = (tokens == self.tokens[rows]) & (log_probs.exp() >= self.min_probability)
            self.running = self.running.index_copy(0, rows, (~settled & self.open_positions[rows]).any(1))
            self.kept, self.tokens = self.kept.put(rows, own), self.tokens.index_copy(0, rows, tokens)
        return self.kept

    def is_over(self) -> bool:
        """Whether all rows are finished; the host waits for the device."""
        return not self.running.any()
