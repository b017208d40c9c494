"""Raw files as published: find them in a folder and read them line by line.

Archives have their own folders, so a file is searched by its name in the folder and below it, plain or
compressed (.gz). Where an archive has several files of one name, the name includes a folder: Giga/input.txt.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from noise2text.core.errors import Problem
from noise2text.data.builders.moses import MosesLoader, load_sacremoses
from noise2text.data.text_files import read_lines

__all__ = ["RawFile", "RawFiles", "find_files", "zip_parallel"]


@dataclass(frozen=True)
class RawFile:
    """A raw file's name, with its folder if others have the same name, and where to get it."""

    name: str
    url: str


def find_files(files: Sequence[RawFile], folder: Path) -> dict[str, Path]:
    """The path of each file; a Problem with one sentence for each missing file."""
    if not folder.is_dir():
        raise Problem(f"There is no folder {str(folder)!r}; --raw names the folder of the raw files.")
    found = {file.name: _candidates(file.name, folder) for file in files}
    missing = [file for file in files if not found[file.name]]
    if missing:
        lines = (f"{file.name} is not in {folder}; get it from {file.url}." for file in missing)
        raise Problem("\n".join(lines))
    for name, paths in found.items():
        if len(paths) > 1:
            raise Problem(f"{name} is in {folder} twice ({paths[0]}, {paths[1]}); leave one of them there.")
    return {name: paths[0] for name, paths in found.items()}


def _candidates(name: str, folder: Path) -> list[Path]:
    """The file in the folder itself, with or without its own folder, or all files of that name below it."""
    for inside in (folder / name, folder / Path(name).name):
        for path in (inside, inside.with_name(f"{inside.name}.gz")):
            if path.is_file():
                return [path]
    below = chain(folder.rglob(name), folder.rglob(f"{name}.gz"))
    return sorted(path for path in below if path.is_file())


@dataclass(frozen=True)
class RawFiles:
    """The raw files of a dataset by name, and the Moses rules for a language."""

    files: dict[str, Path]
    load_moses: MosesLoader = load_sacremoses

    def read_lines(self, name: str) -> Iterator[tuple[str, str]]:
        """The location, for messages, and the text of each line of a file."""
        for line in read_lines(str(self.files[name])):
            try:
                yield line.location, line.data.decode()
            except UnicodeDecodeError as error:
                raise Problem(f"{line.location} is not valid UTF-8; check that it is complete.") from error

    def read_texts(self, name: str) -> Iterator[str]:
        """The text of each line of a file."""
        return (text for _, text in self.read_lines(name))

    def read_parallel(self, first: str, second: str) -> Iterator[tuple[str, str]]:
        """The lines of two files side by side."""
        return zip_parallel(self.read_texts(first), self.read_texts(second), f"{first} and {second}")

    def read_table(self, name: str, columns: Sequence[str], *, quoted: bool) -> Iterator[list[str]]:
        """The named columns of each row of a TSV file with a header."""
        # A quoted value may contain line breaks, so the reader has to see them.
        lines = (f"{text}\n" for text in self.read_texts(name))
        if quoted:
            reader = csv.reader(lines, delimiter="\t")
        else:
            reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE, escapechar="\\")
        header = next(reader, [])
        absent = [column for column in columns if column not in header]
        if absent:
            raise Problem(f"The first line of {name} has no column {absent[0]!r}; is this the raw file?")
        column_indices = [header.index(column) for column in columns]
        try:
            for values in reader:
                if len(values) <= max(column_indices):
                    raise Problem(
                        f"{name}, line {reader.line_num}, has {len(values)} columns of {len(header)}."
                    )
                yield [values[index] for index in column_indices]
        except csv.Error as error:
            raise Problem(f"{name}, line {reader.line_num}, is not a row of the table ({error}).") from error

    def read_json(self, name: str) -> Iterator[tuple[str, object]]:
        """The location, for messages, and the JSON value of each line."""
        for location, text in self.read_lines(name):
            try:
                yield location, json.loads(text)
            except ValueError as error:
                raise Problem(f"{location} is not valid JSON; check that it is complete.") from error


def zip_parallel(first: Iterator[str], second: Iterator[str], names: str) -> Iterator[tuple[str, str]]:
    """Pairs of texts; a Problem if one side ends before the other."""
    for number, (one, other) in enumerate(zip_longest(first, second), 1):
        if one is None or other is None:
            raise Problem(f"{names} are not parallel: one ends before line {number}; fetch both again.")
        yield one, other
