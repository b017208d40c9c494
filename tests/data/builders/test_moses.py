"""Cleaning equals the Moses script's, and a missing sacremoses gives a clear message."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noise2text.core.errors import Problem
from noise2text.data.builders.moses import find_unclean_reason, load_sacremoses, replace_unprintable


@pytest.mark.parametrize(
    "source, target, reason",
    [
        (1, 1, ""),
        (3, 2, ""),  # the ratio itself is still clean
        (4, 2, "one side has more than 1.5 times the words of the other"),
        (2, 4, "one side has more than 1.5 times the words of the other"),
        (175, 175, ""),
        (176, 175, "a side has more than 175 words"),
        (0, 1, "a side is empty"),
        (1, 0, "a side is empty"),
    ],
)
def test_pairs_are_left_out_by_length_and_ratio(source: int, target: int, reason: str) -> None:
    assert find_unclean_reason("w " * source, "w " * target, max_words=175, max_ratio=1.5) == reason


def test_whitespace_of_any_kind_is_no_word() -> None:
    assert find_unclean_reason("ein\u00a0 \tWort", "a word", max_words=2, max_ratio=1) == ""


@given(st.text())
def test_only_unprintable_characters_become_spaces_at_their_positions(text: str) -> None:
    plain = replace_unprintable(text)
    assert len(plain) == len(text)
    assert all(new in (old, " ") for new, old in zip(plain, text, strict=True))
    assert replace_unprintable(plain) == plain


def test_control_and_formatting_characters_are_not_printable() -> None:
    assert replace_unprintable("a\x00b\tc\u200bd\u00ade\u00a0f ü€") == "a b c d e\u00a0f ü€"


def test_without_sacremoses_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(Problem, match=r"pip install 'noise2text\[datasets\]'"):
        load_sacremoses("de")
