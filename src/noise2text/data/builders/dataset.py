"""Datasets: where to get the raw files, how to turn their lines into pairs, and how many pairs to expect.

    raw files → rows, one at a time → train, valid, test

A row is a pair with its split, or a skipped line with the reason. Rows come in the order of the raw files, so
that pairs can be split by counting and nothing has to fit into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from noise2text.data.builders.raw_files import RawFile, RawFiles
from noise2text.data.corpus import Pair

__all__ = ["SPLITS", "Dataset", "DatasetRow", "PublishedSizes", "make_row", "skip_row"]

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class DatasetRow:
    """A pair and its split; or no pair, the split it would have been in if that is known, and the reason."""

    split: str
    pair: Pair | None
    reason: str = ""


def make_row(split: str, src: str, trg: str) -> DatasetRow:
    """A row with a pair, or a skipped row if a side is blank."""
    if not src.strip() or not trg.strip():
        return skip_row("a side is empty", split)
    return DatasetRow(split, Pair(src, trg))


def skip_row(reason: str, split: str = "") -> DatasetRow:
    """A skipped row and the reason."""
    return DatasetRow(split, None, reason)


@dataclass(frozen=True)
class PublishedSizes:
    """The number of pairs in each split, and the publication that reports it."""

    train: int
    valid: int
    test: int
    reference: str
    before_cleaning: bool = False  # counts raw pairs, including those that cleaning removes

    def size_of(self, split: str) -> int:
        """The size of one split."""
        return {"train": self.train, "valid": self.valid, "test": self.test}[split]


@dataclass(frozen=True)
class Dataset:
    """A dataset and how to build it."""

    name: str
    task: str
    papers: tuple[str, ...]
    files: tuple[RawFile, ...]
    sizes: tuple[PublishedSizes, ...]
    license: str
    processing_steps: tuple[str, ...]  # what is done to the raw lines, in words
    read_rows: Callable[[RawFiles], Iterator[DatasetRow]]
    needs_moses: bool = False  # needs the Moses rules of sacremoses
    moses_languages: tuple[str, str] | None = None  # of source and target, if its texts are Moses tokens
