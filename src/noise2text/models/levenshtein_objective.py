"""Training of the Levenshtein Transformer: its three policies imitate the oracle (`levenshtein_edits.py`).

Insertion is trained on references without a random number of their tokens. Deletion is trained on references
in which tokens sampled from the model replace the missing ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noise2text.core.random import make_key, uniform
from noise2text.data.layouts.base import Canvas
from noise2text.diffusion.losses import LossTerm, TokenLoss, label_smoothed_nll
from noise2text.models.cmlm import sample_mask
from noise2text.models.levenshtein import EditPolicies, SpecialTokens
from noise2text.models.levenshtein_edits import (
    align,
    count_insertions,
    find_missing,
    positions_after_deletion,
    scatter_tokens,
)
from noise2text.training.objective import Objective

__all__ = ["EditDraws", "LevenshteinObjective", "add_boundary_tokens"]


def add_boundary_tokens(canvas: Canvas, special_tokens: SpecialTokens) -> Tensor:
    """The target between begin and end tokens, (B, L + 2)."""
    n = canvas.scored.sum(1, keepdim=True)
    inner = torch.where(canvas.scored, canvas.tokens, special_tokens.pad)
    row = nn.functional.pad(
        nn.functional.pad(inner, (1, 0), value=special_tokens.bos), (0, 1), value=special_tokens.pad
    )
    return row.scatter(1, n + 1, special_tokens.eos)


@dataclass(frozen=True)
class EditDraws:
    """The random draws of a batch: which tokens are dropped, and the quantiles of those that replace them."""

    dropped: Tensor  # (B, L + 2)
    quantiles: Tensor  # (B, L + 2)


class LevenshteinObjective(Objective):
    """The loss of imitating the oracle in deleting, opening gaps and filling them, each summed over a row."""

    def __init__(
        self,
        policies: EditPolicies,
        special_tokens: SpecialTokens,
        *,
        forbidden: Tensor,
        label_smoothing: float,
        empty_draft_rate: float,
    ) -> None:
        super().__init__([LossTerm("open"), LossTerm("fill"), LossTerm("delete")])
        self.graph_capturable = False  # the oracle counts on the host
        self.policies, self.special_tokens = policies, special_tokens
        self.label_smoothing, self.empty_draft_rate = label_smoothing, empty_draft_rate
        self.register_buffer("forbidden", forbidden, persistent=False)

    forbidden: Tensor

    def counts(self, canvas: Canvas) -> dict[str, Tensor]:
        """The number of target tokens for every policy, so that their sums are added, not their means."""
        return dict.fromkeys(self.weights, canvas.scored.sum())

    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> EditDraws:
        nothing_left = uniform(make_key(keys, 2)) < self.empty_draft_rate
        # Sometimes nothing is dropped: insertion must also learn not to change a finished text.
        dropped = torch.where(nothing_left[:, None], canvas.scored, sample_mask(canvas, keys, min_hidden=0))
        positions = torch.arange(canvas.tokens.shape[1] + 2, device=keys.device)
        return EditDraws(nn.functional.pad(dropped, (1, 1)), uniform(make_key(keys[:, None], 3, positions)))

    def forward(self, canvas: Canvas, draws: EditDraws) -> dict[str, TokenLoss]:
        pad, policies = self.special_tokens.pad, self.policies
        encoded = policies.transformer.encode(canvas.source)
        reference = add_boundary_tokens(canvas, self.special_tokens)
        padding = reference == pad
        draft = scatter_tokens(
            reference,
            positions_after_deletion(reference, draws.dropped, pad=pad),
            torch.full_like(reference, pad),
        )
        aligned = align(draft, reference, pad=pad)
        insertion_counts = count_insertions(aligned).clamp(max=policies.max_placeholders)
        opened = policies.placeholder_log_probs(draft, draft == pad, encoded)
        is_missing = find_missing(aligned, reference, pad=pad)
        token_log_probs = policies.token_log_probs(
            torch.where(is_missing, self.special_tokens.placeholder, reference), padding, encoded
        )
        sampled_draft = torch.where(
            is_missing, self._sample_tokens(token_log_probs.detach(), draws.quantiles), reference
        )
        to_delete = align(sampled_draft, reference, pad=pad) < 0
        deletion_log_probs = policies.deletion_log_probs(sampled_draft, padding, encoded)
        inner = nn.functional.pad(canvas.scored, (1, 1))
        return {
            "open": TokenLoss(label_smoothed_nll(opened, insertion_counts, 0.0), draft[:, 1:] != pad),
            "fill": TokenLoss(
                label_smoothed_nll(token_log_probs, reference, self.label_smoothing), is_missing
            ),
            "delete": TokenLoss(label_smoothed_nll(deletion_log_probs, to_delete.long(), 0.0), inner),
        }

    def _sample_tokens(self, log_probs: Tensor, quantiles: Tensor) -> Tensor:
        """A token for each position, sampled by its quantile; never a special token."""
        cdf = log_probs.masked_fill(self.forbidden, -torch.inf).softmax(-1).cumsum(-1)
        return (cdf <= quantiles[..., None] * cdf[..., -1:]).sum(-1)
