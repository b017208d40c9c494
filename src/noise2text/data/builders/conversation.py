"""Commonsense Conversation: posts on Reddit and responses to them (Zhou et al., 2018), no graphs.

The training file's 3,384,185 pairs are the papers' 3,382,137 + 2,048, and the validation file's 10,000 are as
many as their test. That is how the splits are made here; which 2,048 pairs the papers took is not published.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from noise2text.core.errors import Problem
from noise2text.data.builders.dataset import Dataset, Row, Sizes, kept
from noise2text.data.builders.raw_files import File, Raw
from noise2text.data.builders.splits import in_order

__all__ = ["CONVERSATION", "responses"]

ADDRESS = "http://coai.cs.tsinghua.edu.cn/file/commonsense_conversation_dataset.tar.gz"
TRAIN, TEST = "trainset.txt", "validset.txt"


def responses(raw: Raw, *, valid: int) -> Iterator[Row]:
    """Posts with their responses."""
    yield from in_order(_turns(raw, TRAIN), test=0, valid=valid)
    yield from (replace(row, split="test") for row in _turns(raw, TEST))


def _turns(raw: Raw, name: str) -> Iterator[Row]:
    for place, record in raw.json(name):
        yield kept("", _side(record, "post", place), _side(record, "response", place))


def _side(record: object, key: str, place: str) -> str:
    words = record.get(key) if isinstance(record, dict) else None
    if not isinstance(words, list):
        raise Problem(f'{place} has no list of words "{key}"; is this the file of Zhou et al. (2018)?')
    return " ".join(map(str, words))


CONVERSATION = Dataset(
    name="commonsense-conversation",
    task="dialogue",
    papers=("DiffuSeq", "SeqDiffuSeq"),
    files=(File(TRAIN, ADDRESS), File(TEST, ADDRESS)),
    sizes=(Sizes(3_382_137, 2_048, 10_000, "SeqDiffuSeq, table 4"),),
    licence="Apache 2.0",
    rules=(
        "the words of post and response, joined by spaces",
        "the first 2,048 pairs of trainset.txt are validation, the rest training; validset.txt is the test",
    ),
    rows=partial(responses, valid=2_048),
)
