"""Wiki-Auto: sentences of Wikipedia and their counterparts in Simple English Wikipedia.

The papers have 684,799 pairs. The published folders have fewer (the unfiltered one about 592,000), and
DiffuSeq does not say how it got more; so the sizes differ, and scores should be compared with care.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from noise2text.data.builders.dataset import Dataset, DatasetRow, PublishedSizes, make_row
from noise2text.data.builders.ordered_split import split_by_order
from noise2text.data.builders.raw_files import RawFile, RawFiles

__all__ = ["WIKI_AUTO", "read_simplifications"]

SOURCE, TARGET = "full_no_split/train.src", "full_no_split/train.dst"
ADDRESS = "https://github.com/chaojiang06/wiki-auto, folder wiki-auto/GEM2021"


def read_simplifications(raw: RawFiles, *, test: int, valid: int) -> Iterator[DatasetRow]:
    """Complex sentences with simple ones."""
    rows = (make_row("", src, trg) for src, trg in raw.read_parallel(SOURCE, TARGET))
    return split_by_order(rows, test=test, valid=valid)


WIKI_AUTO = Dataset(
    name="wiki-auto",
    task="simplification",
    papers=("DiffuSeq", "SeqDiffuSeq", "Difformer"),
    files=(RawFile(SOURCE, ADDRESS), RawFile(TARGET, ADDRESS)),
    sizes=(PublishedSizes(677_751, 2_048, 5_000, "Difformer, table 20, and SeqDiffuSeq, table 4"),),
    license="unspecified; Wikipedia's text is CC BY-SA 3.0",
    processing_steps=(
        "line n of train.src is the source of line n of train.dst",
        "by file order: the first 5,000 are the test, the next 2,048 validation, the rest training",
    ),
    read_rows=partial(read_simplifications, test=5_000, valid=2_048),
)
