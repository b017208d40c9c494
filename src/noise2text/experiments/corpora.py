"""What the studies learn from and are tested on: the embedded dates, or the user's files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from noise2text.core.errors import Problem
from noise2text.core.locks import held
from noise2text.data.dates import write_dates
from noise2text.data.text_files import parts_of

__all__ = ["Files", "content", "dates"]

PAIRS = 20_000


@dataclass(frozen=True)
class Files:
    """The corpora of the full scale."""

    train: str
    valid: str
    test: str


def dates(folder: Path, scale: str) -> Files:
    """The embedded corpus, written unless it is there."""
    if scale != "tiny":
        raise Problem("The full scale trains on your files: give --train, --valid and --test.")
    with held(folder, wait=True):
        if not (folder / "whole").exists():
            write_dates(folder, pairs=PAIRS, seed=0)
            (folder / "whole").touch()
    return Files(*(str(folder / f"{split}.jsonl") for split in ("train", "valid", "test")))


def content(corpus: str) -> str:
    """A hash of a corpus's files."""
    found = hashlib.sha256()
    for part in map(Path, parts_of(corpus)):
        files = sorted(part.rglob("*")) if part.is_dir() else [part]
        for file in (file for file in files if file.is_file()):
            found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:16]
