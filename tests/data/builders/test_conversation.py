"""Commonsense Conversation: words of posts and responses."""

from __future__ import annotations

import json

import pytest

from noise2text.core.errors import Problem
from noise2text.data.builders.conversation import CONVERSATION, read_responses

from .conftest import Write, splits


def lines(*turns: tuple[str, str]) -> str:
    records = (
        {"post": post.split(), "response": response.split(), "all_triples": [1]} for post, response in turns
    )
    return "".join(json.dumps(record) + "\n" for record in records)


def test_training_gives_validation_too_and_the_validation_file_is_the_test(write: Write) -> None:
    files = {
        "trainset.txt": lines(("hi there", "hello ."), ("", "what ?"), ("how so", "because"), ("no", "yes")),
        "validset.txt": lines(("so ?", "so !")),
    }
    assert splits(read_responses(write(files), valid=1)) == {
        "valid": [("hi there", "hello .")],
        "train": [("how so", "because"), ("no", "yes")],
        "test": [("so ?", "so !")],
    }


def test_a_turn_without_words_is_named(write: Write) -> None:
    files = {"trainset.txt": '{"post": ["a"], "response": "b"}\n', "validset.txt": ""}
    with pytest.raises(Problem, match='line 1 has no list of words "response"'):
        list(read_responses(write(files), valid=1))


def test_the_published_sizes_are_those_of_the_training_file() -> None:
    (sizes,) = CONVERSATION.sizes
    assert sizes.train + sizes.valid == 3_384_185
