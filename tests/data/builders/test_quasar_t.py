"""Quasar-T: a document counts only if an answer occurs in it exactly (DiffuSeq, D.1)."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from noise2text.core.errors import Problem
from noise2text.data.builders.quasar_t import read_questions

from .conftest import Write, splits


def lines(records: list[object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def documents(question: str, texts: list[str]) -> list[dict[str, list[str]]]:
    return [{"question": question.split(), "document": text.split()} for text in texts]


CAPITAL = documents(
    "Santiago is the capital of what ?",
    ["Chile has it .", "see www.allchile.com .", "chile , a country", "nothing here"],
)
PECK = documents("A peck of what ?", ["of pickled peppers .", "of peppers pickled"])
FILES = {
    "quasart/train.txt": lines(
        [{"question": "q", "answers": ["chile"]}, {"question": "q", "answers": [["pickled", "peppers"]]}]
    ),
    "quasart/train.json": lines([CAPITAL, PECK]),
    "quasart/test.txt": lines([{"question": "q", "answers": ["mead", "honey wine"]}]),
    "quasart/test.json": lines(
        [documents("What is it ?", ["some ale", "a mead", "honey wine , too", "mead again"])]
    ),
}


def test_documents_with_the_answer_letter_for_letter_are_paired_with_their_question(write: Write) -> None:
    rows = list(read_questions(write(FILES), valid=1, test=2))
    assert splits(rows) == {
        "valid": [("see www.allchile.com .", "Santiago is the capital of what ?")],
        "train": [
            ("chile , a country", "Santiago is the capital of what ?"),
            ("of pickled peppers .", "A peck of what ?"),
        ],
        "test": [("a mead", "What is it ?"), ("honey wine , too", "What is it ?")],
    }
    assert Counter(row.reason for row in rows if row.reason) == {"no answer occurs in the document": 3}


def test_an_empty_answer_is_in_no_document(write: Write) -> None:
    files = FILES | {"quasart/train.txt": lines([{"answers": [""]}, {"answers": []}])}
    assert set(splits(read_questions(write(files), valid=1, test=2))) == {"test"}


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("quasart/train.txt", lines([{"answers": ["chile"]}]), "differ in length"),
        ("quasart/train.json", lines([CAPITAL]), "differ in length"),
        ("quasart/train.txt", lines([{"question": "q"}] * 2), 'line 1 has no "answers"'),
        ("quasart/train.json", lines([{"document": []}] * 2), "no list"),
        ("quasart/train.json", lines([[{"document": ["chile"]}]] * 2), 'no "question"'),
    ],
)
def test_files_of_another_kind_are_problems(write: Write, name: str, text: str, message: str) -> None:
    with pytest.raises(Problem, match=message):
        list(read_questions(write(FILES | {name: text}), valid=1, test=2))
