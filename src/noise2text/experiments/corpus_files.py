"""The corpora of the experiments: the synthetic dates, or the user's files."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from noise2text.core.errors import Problem
from noise2text.core.files import write_text_file
from noise2text.core.locks import lock_file
from noise2text.data.corpus import Pair, format_json_line, read_pairs
from noise2text.data.corpus_paths import fingerprint_corpus
from noise2text.data.dates import write_dates

__all__ = ["CorpusFiles", "ensure_dates_corpus", "ensure_shuffled_corpus", "hash_corpus"]

PAIRS = 20_000


@dataclass(frozen=True)
class CorpusFiles:
    """The training, validation and test pairs, and further training corpora by name (`distilled`)."""

    train: str
    valid: str
    test: str
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def by_name(self) -> dict[str, str]:
        """All of them by name."""
        return {"train": self.train, "valid": self.valid, "test": self.test, **self.more}


def ensure_dates_corpus(folder: Path, scale: str) -> CorpusFiles:
    """The synthetic corpus in the folder, written if it is missing."""
    if scale != "tiny":
        raise Problem("--scale full trains on your files: give --train, --valid and --test.")
    with lock_file(folder, wait=True):
        if not (folder / "whole").exists():
            write_dates(folder, pairs=PAIRS, seed=0)
            (folder / "whole").touch()
    train, valid, test = (str(folder / f"{split}.jsonl") for split in ("train", "valid", "test"))
    return CorpusFiles(train, valid, test)


def ensure_shuffled_corpus(folder: Path, train: str) -> str:
    """The training corpus with the targets of other sources, written into the folder if it is missing."""
    path = folder / f"shuffled-{hash_corpus(train)}.jsonl"
    with lock_file(path, wait=True):
        if not path.exists():
            pairs = list(read_pairs(train))
            order = random.Random("shuffled").sample(range(len(pairs)), len(pairs))
            # Along one cycle, so that no source keeps its own target.
            targets = {source: pairs[other].trg for source, other in pairwise([*order, order[0]])}
            shuffled = (Pair(pair.src, targets[index]) for index, pair in enumerate(pairs))
            write_text_file(path, "".join(map(format_json_line, shuffled)))
    return str(path)


def hash_corpus(corpus: str) -> str:
    """A hash of the content of a corpus's files."""
    found = fingerprint_corpus(corpus)
    if found is None:
        raise Problem(
            f"An experiment reads its corpora several times, and cannot read {corpus}: give a file."
        )
    return str(found["sha256"])[:16]
