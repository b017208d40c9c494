"""The corpora of the experiments: the synthetic dates, or the user's files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from noise2text.core.errors import Problem
from noise2text.core.locks import lock_file
from noise2text.data.corpus_paths import fingerprint_corpus
from noise2text.data.dates import write_dates

__all__ = ["CorpusFiles", "ensure_dates_corpus", "hash_corpus"]

PAIRS = 20_000


@dataclass(frozen=True)
class CorpusFiles:
    """The training, validation and test pairs."""

    train: str
    valid: str
    test: str


def ensure_dates_corpus(folder: Path, scale: str) -> CorpusFiles:
    """The synthetic corpus in the folder, written if it is missing."""
    if scale != "tiny":
        raise Problem("--scale full trains on your files: give --train, --valid and --test.")
    with lock_file(folder, wait=True):
        if not (folder / "whole").exists():
            write_dates(folder, pairs=PAIRS, seed=0)
            (folder / "whole").touch()
    return CorpusFiles(*(str(folder / f"{split}.jsonl") for split in ("train", "valid", "test")))


def hash_corpus(corpus: str) -> str:
    """A hash of the content of a corpus's files."""
    found = fingerprint_corpus(corpus)
    if found is None:
        raise Problem(
            f"An experiment reads its corpora several times, and cannot read {corpus}: give a file."
        )
    return str(found["sha256"])[:16]
