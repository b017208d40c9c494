"""Splits by the order of the file: the first pairs are the test, the next validation, the rest training.

DiffuSeq splits QQP this way (2,500, then 2,048, then the other 144,715 of 149,263).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from noise2text.data.builders.dataset import DatasetRow

__all__ = ["split_by_order"]


def split_by_order(rows: Iterable[DatasetRow], *, test: int, valid: int) -> Iterator[DatasetRow]:
    """The rows with their splits; skipped lines are not counted."""
    number = 0
    for row in rows:
        if row.pair is None:
            yield row
            continue
        yield replace(row, split="test" if number < test else "valid" if number < test + valid else "train")
        number += 1
