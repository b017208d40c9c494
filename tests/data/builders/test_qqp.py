"""QQP: duplicates only, in the order of the file."""

from __future__ import annotations

import csv
import io
from collections import Counter

from noise2text.data.builders.qqp import NAME, QQP, read_paraphrases

from .conftest import Write, splits

HEADER = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]


def table(questions: list[tuple[str, str, int]]) -> str:
    """The file as a spreadsheet would write it."""
    file = io.StringIO()
    writer = csv.writer(file, delimiter="\t", lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows([place, 2 * place, 2 * place + 1, *row] for place, row in enumerate(questions))
    return file.getvalue()


def test_duplicates_are_split_by_file_order_with_their_case(write: Write) -> None:
    questions = [
        ("How do I cook rice?", "What is the way to cook rice?", 1),
        ("Who am I?", "Who are you?", 0),
        ('What does "Yes" mean?', "Yes: what does it mean?", 1),
        ("Is it two\nlines?", "Is it one?", 1),
        ("Why is it dark?", "", 1),
        ("Where is Rome?", "Rome is where?", 1),
    ]
    rows = list(read_paraphrases(write({NAME: table(questions)}), test=1, valid=2))
    assert splits(rows) == {
        "test": [("How do I cook rice?", "What is the way to cook rice?")],
        "valid": [('What does "Yes" mean?', "Yes: what does it mean?"), ("Is it two lines?", "Is it one?")],
        "train": [("Where is Rome?", "Rome is where?")],
    }
    assert Counter(row.reason for row in rows if row.reason) == {"not a duplicate": 1, "a side is empty": 1}


def test_the_papers_sizes_are_all_duplicates_of_the_file() -> None:
    (sizes,) = QQP.sizes
    assert sizes.train + sizes.valid + sizes.test == 149_263


def test_the_dataset_holds_out_what_the_papers_do(write: Write) -> None:
    questions = [(f"{place} a?", f"{place} b?", 1) for place in range(4_550)]
    found = splits(QQP.read_rows(write({NAME: table(questions)})))
    assert found["test"][0][0] == "0 a?"
    assert found["valid"][0][0] == "2500 a?"
    assert [src for src, _ in found["train"]] == ["4548 a?", "4549 a?"]
