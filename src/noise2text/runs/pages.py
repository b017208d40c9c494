"""Tables and pages on disk: each is there whole, or as it was before."""

from __future__ import annotations

from pathlib import Path

from noise2text.problem import Problem
from noise2text.training.checkpoint import write_whole

__all__ = ["write_page"]


def write_page(path: Path, text: str) -> None:
    """Put a text into a file, making the folders on the way."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda draft: draft.write_text(text, encoding="utf-8", newline="\n"))
    except OSError as error:
        raise Problem(f"{path} cannot be written: {error.strerror}.") from error
