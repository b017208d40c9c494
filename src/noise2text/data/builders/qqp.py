"""Quora Question Pairs: the questions marked as duplicates, as paraphrases (DiffuSeq, section 4.1).

All 149,263 pairs, in the order of the file: 2,500 for the test, 2,048 for validation, 144,715 for training.
Questions occur in more than one split, and copying the source scores high: report both beside any result.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from noise2text.data.builders.dataset import Dataset, DatasetRow, PublishedSizes, make_row, skip_row
from noise2text.data.builders.ordered_split import split_by_order
from noise2text.data.builders.raw_files import RawFile, RawFiles

__all__ = ["QQP", "read_paraphrases"]

NAME = "quora_duplicate_questions.tsv"


def read_paraphrases(raw: RawFiles, *, test: int, valid: int) -> Iterator[DatasetRow]:
    """The duplicates, with the first question as the source."""
    return split_by_order(_duplicates(raw), test=test, valid=valid)


def _duplicates(raw: RawFiles) -> Iterator[DatasetRow]:
    for first, second, duplicate in raw.read_table(
        NAME, ("question1", "question2", "is_duplicate"), quoted=True
    ):
        if duplicate == "1":
            yield make_row("", first.replace("\n", " "), second.replace("\n", " "))
        else:
            yield skip_row("not a duplicate")


QQP = Dataset(
    name="qqp",
    task="paraphrase",
    papers=("DiffuSeq", "SeqDiffuSeq", "Difformer"),
    files=(RawFile(NAME, "http://qim.fs.quoracdn.net/quora_duplicate_questions.tsv"),),
    sizes=(PublishedSizes(144_715, 2_048, 2_500, "Difformer, table 20, and SeqDiffuSeq, table 4"),),
    license="Quora's terms of service, non-commercial use",
    processing_steps=(
        "rows with is_duplicate = 1; question1 is the source, question2 the target; case is kept",
        "by file order: the first 2,500 are the test, the next 2,048 validation, the rest training",
    ),
    read_rows=partial(read_paraphrases, test=2_500, valid=2_048),
)
