"""Wiki-Auto: parallel files, split by order."""

from __future__ import annotations

from noise2text.data.builders.wiki_auto import SOURCE, TARGET, read_simplifications

from .conftest import Write, splits


def test_line_n_of_one_file_is_simplified_by_line_n_of_the_other(write: Write) -> None:
    raw = write({SOURCE: "A\n\nC\nD\nE\n", f"{TARGET}.gz": "a\nb\nc\nd\ne\n"})
    assert splits(read_simplifications(raw, test=1, valid=1)) == {
        "test": [("A", "a")],
        "valid": [("C", "c")],
        "train": [("D", "d"), ("E", "e")],
    }
