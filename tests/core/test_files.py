"""A file is written completely or not at all, with its folders, and an error is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from noise2text.core.errors import Problem
from noise2text.core.files import write_text_file


def test_a_page_replaces_the_one_before_and_leaves_no_draft(tmp_path: Path) -> None:
    page = tmp_path / "new" / "folder" / "page.md"
    for text in ("first\n", "second, größer\n"):
        write_text_file(page, text)
        assert page.read_bytes() == text.encode()
    assert list(page.parent.iterdir()) == [page]


def test_where_nothing_can_be_written_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Problem, match="cannot be written: "):
        write_text_file(tmp_path / "file" / "page.md", "text")
