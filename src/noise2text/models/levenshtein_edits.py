"""Deletions and insertions, and the fewest of them that turn one row of tokens into another.

A draft y becomes a reference r by deleting all but a longest common subsequence of both, opening gaps for the
other tokens of r, and filling them (the oracle of the Levenshtein Transformer, Gu et al., 2019; its distance
knows no substitution). With S[i, j] the length of a longest common subsequence of y[i:] and r[j:],

    S[i, j] = max(S[i+1, j], S[i, j+1], S[i+1, j+1] + [y_i = r_j])

`align` takes y's tokens from the left, each to its first match in r if that still allows the longest. So a
draft is always mended in the same way, though several deletions could have made it. All rows of a batch are
done at once; the loops run over positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "align",
    "count_insertions",
    "find_missing",
    "positions_after_deletion",
    "positions_after_insertion",
    "scatter_tokens",
]


def align(draft: Tensor, reference: Tensor, *, pad: int) -> Tensor:
    """Where in the reference (B, N) each token of the draft (B, M) is kept; −1 where it has to go."""
    reference = torch.where(reference == pad, -1, reference)  # padding matches nothing
    longest = _common_subsequence_lengths(draft, reference)  # (M + 1, B, N + 1)
    positions = torch.arange(reference.shape[1], device=draft.device)
    next_free = torch.zeros_like(draft[:, :1])  # (B, 1)
    aligned = []
    for i in range(draft.shape[1]):
        match = (reference == draft[:, i, None]) & (positions >= next_free)
        first = match.int().argmax(1, keepdim=True)
        with_it = 1 + longest[i + 1].gather(1, first + 1)
        keep = match.any(1, keepdim=True) & (with_it == longest[i].gather(1, next_free))
        aligned.append(torch.where(keep, first, -1))
        next_free = torch.where(keep, first + 1, next_free)
    return torch.cat(aligned, 1)


def _common_subsequence_lengths(draft: Tensor, reference: Tensor) -> Tensor:
    """S[i, j] for every i and j, (M + 1, B, N + 1)."""
    rows = [torch.zeros_like(torch.nn.functional.pad(reference, (0, 1)))]
    for i in reversed(range(draft.shape[1])):
        below = rows[-1]
        taken = below[:, 1:] + (reference == draft[:, i, None])
        best = torch.maximum(below, torch.nn.functional.pad(taken, (0, 1)))
        rows.append(best.flip(1).cummax(1).values.flip(1))
    return torch.stack(rows[::-1])


def find_missing(aligned: Tensor, reference: Tensor, *, pad: int) -> Tensor:
    """True at the tokens (B, N) of the reference that an aligned draft does not have."""
    width = reference.shape[1]
    had = torch.zeros_like(torch.nn.functional.pad(reference, (0, 1)), dtype=torch.bool)
    had.scatter_(1, torch.where(aligned < 0, width, aligned), True)
    return ~had[:, :width] & (reference != pad)


def count_insertions(aligned: Tensor) -> Tensor:
    """How many tokens each gap (B, M − 1) lacks, in a draft whose tokens are all kept; 0 beside padding."""
    return (aligned[:, 1:] - aligned[:, :-1] - 1) * (aligned[:, 1:] >= 0)


def positions_after_deletion(tokens: Tensor, delete_mask: Tensor, *, pad: int) -> Tensor:
    """Where each token (B, L) goes when the doomed ones leave; −1 for these and for padding."""
    stays = ~delete_mask & (tokens != pad)
    return torch.where(stays, stays.cumsum(1) - 1, -1)


def positions_after_insertion(tokens: Tensor, counts: Tensor, *, pad: int) -> tuple[Tensor, Tensor]:
    """Where each token (B, L) goes when gaps (B, L − 1) open, −1 for padding; and the new lengths."""
    before = torch.nn.functional.pad(counts.cumsum(1), (1, 0))
    positions = torch.arange(tokens.shape[1], device=tokens.device) + before
    real = tokens != pad
    return torch.where(real, positions, -1), real.sum(1) + counts.sum(1)


def scatter_tokens(values: Tensor, positions: Tensor, onto: Tensor) -> Tensor:
    """The board `onto` (B, W) with what stands in the column (B, L) at its places; −1 is nowhere."""
    width = onto.shape[1]
    board = torch.nn.functional.pad(onto.to(values.dtype), (0, 1))
    return board.scatter(1, torch.where(positions < 0, width, positions), values)[:, :width]
