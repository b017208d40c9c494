"""A file or folder is written completely or not at all, and an error is one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from safetensors import SafetensorError

from noise2text.core.errors import Problem
from noise2text.core.files import read_limited, write_atomically, write_folder_atomically, write_text_file
from noise2text.core.locks import lock_folder

FULL_DISK = [
    OSError(28, "No space left on device"),
    SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
]


def test_a_page_replaces_the_one_before_and_leaves_no_draft(tmp_path: Path) -> None:
    page = tmp_path / "new" / "folder" / "page.md"
    for text in ("first\n", "second, größer\n"):
        write_text_file(page, text)
        assert page.read_bytes() == text.encode()
    assert list(page.parent.iterdir()) == [page]


def test_where_nothing_can_be_written_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Problem, match="cannot be written"):
        write_text_file(tmp_path / "file" / "page.md", "text")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(Problem, match=r"run cannot be written \(Not a directory\)"),
        lock_folder(tmp_path / "file" / "run"),
    ):
        pass


@pytest.mark.parametrize("error", FULL_DISK, ids=["Python", "safetensors"])
def test_a_full_disk_is_one_sentence_and_leaves_the_file_before(tmp_path: Path, error: Exception) -> None:
    file = tmp_path / "model.safetensors"
    file.write_text("old")

    def fill_disk(draft: Path) -> None:
        draft.write_text("half")
        raise error

    with pytest.raises(Problem, match=r"model\.safetensors cannot be written \(No space left on device\)"):
        write_atomically(file, fill_disk)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("model.safetensors", "old")]


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_bytes(b"12345")
    assert read_limited(file, 5) == b"12345"
    with pytest.raises(Problem, match=r"tokenizer\.json is too large: it may have 4 bytes"):
        read_limited(file, 4)


def test_a_new_name_is_on_the_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk cannot be asked, so the system call is recorded."""
    flushed: list[tuple[int, bool]] = []
    monkeypatch.setattr(
        os,
        "fsync",
        lambda handle: flushed.append((os.fstat(handle).st_ino, (tmp_path / "page.md").exists())),
    )
    write_text_file(tmp_path / "page.md", "text")
    assert flushed == [((tmp_path / "page.md").stat().st_ino, False), (tmp_path.stat().st_ino, True)]


@pytest.mark.parametrize("error", [*FULL_DISK, KeyboardInterrupt()], ids=["Python", "safetensors", "Ctrl-C"])
def test_a_folder_is_whole_or_absent(tmp_path: Path, error: BaseException) -> None:
    def fail() -> None:
        with write_folder_atomically(tmp_path / "out") as draft:
            (draft / "a").write_text("half")
            raise error

    with pytest.raises((Problem, KeyboardInterrupt)):
        fail()
    assert not any(tmp_path.iterdir())
    (tmp_path / ".out.draft").mkdir()  # as a killed process leaves it
    (tmp_path / ".out.draft" / "b").touch()
    with write_folder_atomically(tmp_path / "out") as draft:
        (draft / "a").write_text("whole")
        assert not (tmp_path / "out").exists()
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == ["out", "out/a"]
