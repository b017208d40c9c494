"""What a dataset is: where its raw files are had, how their lines become pairs, and how many there should be.

    raw files → rows, one at a time → train, valid, test

A row is a pair of one of the splits, or a line that was left out and the reason. Rows come in the order of
the raw files, so that splits are a matter of counting and nothing has to fit into memory.
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
    """A pair and its split; or no pair, the split that it would have been in, if that is known, and why."""

    split: str
    pair: Pair | None
    reason: str = ""


def make_row(split: str, src: str, trg: str) -> DatasetRow:
    """A row with a pair, or one without where a side says nothing."""
    if not src.strip() or not trg.strip():
        return skip_row("a side is empty", split)
    return DatasetRow(split, Pair(src, trg))


def skip_row(reason: str, split: str = "") -> DatasetRow:
    """A row without a pair."""
    return DatasetRow(split, None, reason)


@dataclass(frozen=True)
class PublishedSizes:
    """How many pairs each split has, and who says so."""

    train: int
    valid: int
    test: int
    reference: str
    before_cleaning: bool = False  # the number of raw pairs, whichever of them cleaning leaves out

    def size_of(self, split: str) -> int:
        """The size of one split."""
        return {"train": self.train, "valid": self.valid, "test": self.test}[split]


@dataclass(frozen=True)
class Dataset:
    """A dataset of the papers."""

    name: str
    task: str
    papers: tuple[str, ...]
    files: tuple[RawFile, ...]
    sizes: tuple[PublishedSizes, ...]
    licence: str
    processing_steps: tuple[str, ...]  # what is done to the raw lines, in words
    read_rows: Callable[[RawFiles], Iterator[DatasetRow]]
    needs_moses: bool = False  # needs the Moses rules of sacremoses
