"""Token deletions and insertions, and the fewest of them that turn one row of tokens into another.

A draft y becomes a reference r by deleting all but a longest common subsequence of both, opening gaps for the
other tokens of r, and filling them (the oracle of the Levenshtein Transformer, Gu et al., 2019; its distance
has no substitutions). With S[i, j] the length of a longest common subsequence of y[i:] and r[j:],

    S[i, j] = max(S[i+1, j], S[i, j+1], S[i+1, j+1] + [y_i = r_j])

`align` goes through y from the left and matches each token with its first occurrence in r, if a longest
common subsequence is still possible then. So the edits of a draft are always the same, even where several are
shortest. All rows of a batch are processed at once; the loops are over positions.
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
    """The position in the reference (B, N) of each token of the draft (B, M); −1 where it is deleted."""
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
    """True at the tokens (B, N) of the reference that the aligned draft lacks."""
    width = reference.shape[1]
    present = torch.zeros_like(torch.nn.functional.pad(reference, (0, 1)), dtype=torch.bool)
    present.scatter_(1, torch.where(aligned < 0, width, aligned), True)
    return ~present[:, :width] & (reference != pad)


def count_insertions(aligned: Tensor) -> Tensor:
    """How many tokens each gap (B, M − 1) of a draft without deletions lacks; 0 beside padding."""
    return (aligned[:, 1:] - aligned[:, :-1] - 1) * (aligned[:, 1:] >= 0)


def positions_after_deletion(tokens: Tensor, delete_mask: Tensor, *, pad: int) -> Tensor:
    """The new position of each token (B, L) after a deletion; −1 for deleted tokens and padding."""
    kept = ~delete_mask & (tokens != pad)
    return torch.where(kept, kept.cumsum(1) - 1, -1)


def positions_after_insertion(tokens: Tensor, counts: Tensor, *, pad: int) -> tuple[Tensor, Tensor]:
    """The new position of each token (B, L), −1 for padding, and the new lengths.

    `counts` (B, L − 1) tokens are inserted into the gaps.
    """
    before = torch.nn.functional.pad(counts.cumsum(1), (1, 0))
    positions = torch.arange(tokens.shape[1], device=tokens.device) + before
    real = tokens != pad
    return torch.where(real, positions, -1), real.sum(1) + counts.sum(1)


def scatter_tokens(values: Tensor, positions: Tensor, onto: Tensor) -> Tensor:
    """The rows `onto` (B, W) with the values (B, L) written at their positions; −1 is nowhere."""
    width = onto.shape[1]
    padded = torch.nn.functional.pad(onto.to(values.dtype), (0, 1))  # the last column takes position −1
    return padded.scatter(1, torch.where(positions < 0, width, positions), values)[:, :width]
