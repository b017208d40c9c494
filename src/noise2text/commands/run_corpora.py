"""The corpora of a run as files: rows from Python and an automatic validation split are written into it.

    RUN/data/pairs/train.jsonl  RUN/data/pairs/valid.jsonl

A resumed run reads the same files again; other rows than before are refused.
"""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem, abbreviate
from noise2text.core.files import write_atomically
from noise2text.data.corpus import Pair, read_pairs, write_pairs
from noise2text.data.corpus_paths import check_file, is_pipe, split_corpus_path
from noise2text.data.python_pairs import convert_rows
from noise2text.data.token_store import METADATA_FILE
from noise2text.data.validation_split import choose_split

__all__ = ["Corpora"]


@dataclass(frozen=True)
class Corpora:
    """The training and validation pairs that the user gave: files, or rows.

    Without validation pairs, some of the training pairs are set aside.

    Fields:
        train, valid: a file, a prepared folder, "-", or rows; valid may be None.
        folder: where rows are written.
        fields: the names of source and target in rows that are dicts.
    """

    train: Any
    valid: Any
    folder: Path
    fields: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        given = [corpus for corpus in (self.train, self.valid) if corpus is not None]
        if all(isinstance(corpus, str) and corpus == "-" for corpus in (self.train, self.valid)):
            raise Problem("Standard input can be the training pairs or the validation pairs, not both.")
        if self.fields is not None and not _are_fields(self.fields):
            raise Problem(
                f"The argument fields names two columns, such as ('de', 'en'), not {abbreviate(self.fields)}."
            )
        if self.fields is not None and all(isinstance(corpus, str | Path) for corpus in given):
            raise Problem("The argument fields names the columns of rows: leave it out for files.")
        if self.valid is None and _is_prepared(self.train):
            raise Problem(f"{self.train} is prepared and cannot be split: give the validation pairs, too.")

    @property
    def files(self) -> dict[str, str]:
        """The files that the run reads, of which `write` writes those in the run."""
        return {
            name: str(corpus)
            if isinstance(corpus, str | Path) and self.valid is not None
            else str(self.folder / f"{name}.jsonl")
            for name, corpus in (("train", self.train), ("valid", self.valid))
        }

    def write(self, *, seed: int, skip_bad: bool, show_line: Callable[[str], None]) -> None:
        """Write the files that are in the run, and show how the pairs were split."""
        for corpus in (self.train, self.valid):  # before one of them is tokenized
            if isinstance(corpus, str | Path) and not Path(corpus).is_dir():
                for file in split_corpus_path(str(corpus)):
                    check_file(file)
        is_new = not self.folder.exists()
        try:
            if self.valid is None:
                self._write_split(seed=seed, skip_bad=skip_bad, show_line=show_line)
                return
            for name, corpus in (("train", self.train), ("valid", self.valid)):
                if not isinstance(corpus, str | Path):
                    self._write(name, self._read(corpus, skip_bad=skip_bad))
        except Problem:
            if is_new:  # the folder of the run is free again
                shutil.rmtree(self.folder.parent, ignore_errors=True)
            raise

    def _write_split(self, *, seed: int, skip_bad: bool, show_line: Callable[[str], None]) -> None:
        if _is_read_once(self.train) and (self.folder / "train.jsonl").exists():
            return  # standard input or a pipe was split when the run started
        corpus = self.train
        if _is_read_once(corpus) or not isinstance(corpus, str | Path):  # so may rows
            corpus = list(self._read(corpus, skip_bad=skip_bad))

        def read() -> Iterable[Pair]:
            return self._read(corpus, skip_bad=skip_bad)

        split = choose_split(read, seed=seed)
        self._write("valid", (pair for pair in read() if split.is_validation(pair)))
        self._write("train", (pair for pair in read() if not split.is_validation(pair)))
        show_line(split.describe())

    def _read(self, corpus: Any, *, skip_bad: bool) -> Iterable[Pair]:
        if isinstance(corpus, str | Path):
            return read_pairs(str(corpus), skip_bad=skip_bad)
        return convert_rows(corpus, fields=self.fields, skip_bad=skip_bad)

    def _write(self, name: str, pairs: Iterable[Pair]) -> None:
        """Write the pairs; if the run has a file already, only check that they are the same."""
        file = self.folder / f"{name}.jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            write_atomically(file, lambda draft: write_pairs(draft, pairs))
            return
        again = self.folder / f"{name}.again.jsonl"
        try:
            write_pairs(again, pairs)
            if not filecmp.cmp(file, again, shallow=False):
                raise Problem(
                    f"The run was started with other {name} pairs, {file}: resume it with the same."
                )
        finally:
            again.unlink(missing_ok=True)


def _is_read_once(corpus: Any) -> bool:
    return isinstance(corpus, str | Path) and is_pipe(str(corpus))


def _is_prepared(corpus: Any) -> bool:
    return isinstance(corpus, str | Path) and (Path(corpus) / METADATA_FILE).exists()


def _are_fields(fields: Any) -> bool:
    return isinstance(fields, tuple | list) and len(fields) == 2 and all(isinstance(x, str) for x in fields)
