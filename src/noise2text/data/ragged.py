"""Rows of different lengths in one flat array, so that large batches are padded without a Python loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

__all__ = ["RaggedRows"]


@dataclass(frozen=True)
class RaggedRows:
    """Token rows one after another, and the length of each."""

    tokens: np.ndarray  # (sum of lengths,)
    lengths: np.ndarray  # (B,)

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int]]) -> RaggedRows:
        """Lists of tokens as rows."""
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        return cls(np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum())), lengths)

    @classmethod
    def from_slices(cls, tokens: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> RaggedRows:
        """The rows of a long array that begin at `starts` and have these lengths."""
        lengths = lengths.astype(np.int64)
        offsets = np.repeat(starts - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
        return cls(tokens[np.arange(int(lengths.sum())) + offsets].astype(np.int64), lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[list[int]]:
        """Each row as a list."""
        return (row.tolist() for row in np.split(self.tokens, np.cumsum(self.lengths)[:-1]))

    def surround(self, prefix: Sequence[int], suffix: Sequence[int]) -> RaggedRows:
        """The rows with these tokens before and after each of them."""
        ends = np.cumsum(self.lengths)
        bounds = np.stack([ends - self.lengths, ends], axis=1).ravel()  # where prefixes and suffixes go
        places = np.repeat(bounds, np.tile([len(prefix), len(suffix)], len(self)))
        tokens = np.insert(self.tokens, places, np.tile([*prefix, *suffix], len(self)))
        return RaggedRows(tokens, self.lengths + len(prefix) + len(suffix))

    def pad_to(self, width: int, *, pad: int) -> tuple[Tensor, Tensor]:
        """The rows padded to (B, width), and the mask of the padding; wider if a row is longer."""
        width = max(width, int(self.lengths.max()))
        padding = np.arange(width) >= self.lengths[:, None]
        tokens = np.full(padding.shape, pad, dtype=np.int64)
        tokens[~padding] = self.tokens
        return torch.from_numpy(tokens), torch.from_numpy(padding)
