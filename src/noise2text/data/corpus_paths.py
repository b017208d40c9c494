"""The files of a corpus as such: where they are, whether they can be read twice, and what is in them.

A run records these, so that it does not depend on the working directory and notices a changed corpus.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from noise2text.data.fields import split_fields
from noise2text.data.text_files import split_corpus_path

__all__ = ["fingerprint_corpus", "is_pipe", "make_absolute"]


def is_pipe(path: str) -> bool:
    """Whether a corpus can be read only once: standard input, a FIFO, or the <(…) of a shell."""
    return path == "-" or any(_is_stream(part) for part in split_corpus_path(path))


def _is_stream(file: str) -> bool:
    try:
        mode = os.stat(file).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def make_absolute(path: str) -> str:
    """The corpus with absolute paths, which mean the same in every working directory."""
    if is_pipe(path):
        return path
    parts, (_, fields) = split_corpus_path(path), split_fields(path)
    absolute = ",".join(map(os.path.abspath, parts))
    if absolute.count(",") != len(parts) - 1:
        return path  # a folder with a comma in its name
    return f"{absolute}[{','.join(fields)}]" if fields and not os.path.exists(path) else absolute


def fingerprint_corpus(path: str) -> dict[str, int | str] | None:
    """The size and the SHA-256 of a corpus; None if it is missing or can be read only once."""
    if is_pipe(path):
        return None
    size, digest = 0, hashlib.sha256()
    for part in map(Path, split_corpus_path(path)):
        files = sorted(file for file in part.rglob("*") if file.is_file()) if part.is_dir() else [part]
        for file in files:
            try:
                with file.open("rb") as opened:
                    digest.update(hashlib.file_digest(opened, "sha256").digest())
                size += file.stat().st_size
            except OSError:
                return None
    return {"bytes": size, "sha256": digest.hexdigest()}
