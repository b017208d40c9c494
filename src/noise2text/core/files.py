"""Atomic writes: at every moment a file is either complete or as it was before."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from noise2text.core.errors import Problem

__all__ = ["flush_to_disk", "write_atomically", "write_text_file"]


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` create the file under a temporary name, then rename it into place."""
    draft = path.with_name(path.name + ".draft")
    draft.touch()  # with the user's default permissions; safetensors lets only the owner read
    mode = draft.stat().st_mode
    write(draft)
    draft.chmod(mode)
    flush_to_disk(draft)
    os.replace(draft, path)


def flush_to_disk(file: Path) -> None:
    """Wait until the file's contents are on the disk."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def write_text_file(path: Path, text: str) -> None:
    """Write a text file atomically and create its folders."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda draft: draft.write_text(text, encoding="utf-8", newline="\n"))
    except OSError as error:
        raise Problem(f"{path} cannot be written: {error.strerror}.") from error
