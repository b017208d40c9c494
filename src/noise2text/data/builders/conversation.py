"""Commonsense Conversation: Reddit posts and responses (Zhou et al., 2018), without the knowledge graphs.

The training file's 3,384,185 pairs are the papers' 3,382,137 + 2,048, and the validation file has 10,000
pairs like their test split. The splits here follow from this; the papers do not say which 2,048 pairs are
validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from noise2text.core.errors import Problem
from noise2text.data.builders.dataset import Dataset, DatasetRow, PublishedSizes, make_row
from noise2text.data.builders.ordered_split import split_by_order
from noise2text.data.builders.raw_files import RawFile, RawFiles

__all__ = ["CONVERSATION", "read_responses"]

ADDRESS = "http://coai.cs.tsinghua.edu.cn/file/commonsense_conversation_dataset.tar.gz"
TRAIN, TEST = "trainset.txt", "validset.txt"


def read_responses(raw: RawFiles, *, valid: int) -> Iterator[DatasetRow]:
    """Posts with their responses."""
    yield from split_by_order(_read_turns(raw, TRAIN), test=0, valid=valid)
    yield from (replace(row, split="test") for row in _read_turns(raw, TEST))


def _read_turns(raw: RawFiles, name: str) -> Iterator[DatasetRow]:
    for location, record in raw.read_json(name):
        yield make_row("", _join_words(record, "post", location), _join_words(record, "response", location))


def _join_words(record: object, key: str, location: str) -> str:
    words = record.get(key) if isinstance(record, dict) else None
    if not isinstance(words, list):
        raise Problem(f'{location} has no list of words "{key}"; is this the file of Zhou et al. (2018)?')
    return " ".join(map(str, words))


CONVERSATION = Dataset(
    name="commonsense-conversation",
    task="dialogue",
    papers=("DiffuSeq", "SeqDiffuSeq"),
    files=(RawFile(TRAIN, ADDRESS), RawFile(TEST, ADDRESS)),
    sizes=(PublishedSizes(3_382_137, 2_048, 10_000, "SeqDiffuSeq, table 4"),),
    license="Apache 2.0",
    processing_steps=(
        "the words of post and response, joined by spaces",
        "the first 2,048 pairs of trainset.txt are validation, the rest training; validset.txt is the test",
    ),
    read_rows=partial(read_responses, valid=2_048),
)
