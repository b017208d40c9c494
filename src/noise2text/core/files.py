"""Whole-file writes: a file is there complete, or as it was before, at every moment."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from noise2text.core.errors import Problem

__all__ = ["flush_to_disk", "write_atomically", "write_text_file"]


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a file under another name, then put it in its place at once."""
    draft = path.with_name(path.name + ".draft")
    draft.touch()  # with the rights that the user gives to new files; safetensors gives others none
    mode = draft.stat().st_mode
    write(draft)
    draft.chmod(mode)
    flush_to_disk(draft)
    os.replace(draft, path)


def flush_to_disk(file: Path) -> None:
    """Return when the disk has the file's contents."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def write_text_file(path: Path, text: str) -> None:
    """Write a text file whole, making the folders on the way."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda draft: draft.write_text(text, encoding="utf-8", newline="\n"))
    except OSError as error:
        raise Problem(f"{path} cannot be written: {error.strerror}.") from error
