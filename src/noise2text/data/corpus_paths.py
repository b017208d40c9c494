"""The names of corpora: which files they are, which fields they name, and what is in the files.

    corpus.jsonl   corpus.de,corpus.en   corpus.csv[de,en]   - (standard input)

A run records absolute names and fingerprints, so that it does not depend on the working directory and notices
a changed corpus.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from noise2text.core.errors import Problem

__all__ = [
    "check_file",
    "display_name",
    "fingerprint_corpus",
    "is_pipe",
    "make_absolute",
    "split_corpus_path",
    "split_fields",
    "with_fields",
]


def display_name(path: str) -> str:
    """The name of the file in messages."""
    return "standard input" if path == "-" else path


def split_corpus_path(path: str) -> list[str]:
    """The one or two files of a corpus, without the fields; an existing file may have a comma in its name."""
    path, _ = split_fields(path)
    if "," not in path or os.path.exists(path):
        return [path]
    parts = path.split(",")
    if len(parts) != 2 or not all(parts) or "-" in parts:
        raise Problem(f"{path!r} does not name two parallel files; write them as SOURCE,TARGET.")
    return parts


def split_fields(path: str) -> tuple[str, tuple[str, ...]]:
    """The path without the fields in brackets at its end, and the fields: `c.csv[de,en]`.

    An existing file may have brackets in its name.
    """
    found = re.fullmatch(r"(.+)\[([^\[\]]+)\]", path)
    if found is None or os.path.exists(path):
        return path, ()
    fields = tuple(name.strip() for name in found[2].split(","))
    if not all(fields) or len(fields) > 2:
        raise Problem(f"{path!r} does not name one or two fields: write them as [SOURCE,TARGET] or [TEXT].")
    return found[1], fields


def with_fields(path: str, fields: str | None) -> str:
    """The path with the fields of the option --fields, which a path may also name itself."""
    if fields is None or split_fields(path)[1] or os.path.isdir(path):  # a prepared folder has no fields
        return path
    return f"{path}[{fields}]"


def check_file(path: str) -> None:
    """Raise a Problem if there is no such file, before anything is read."""
    if path == "-":
        return
    if not os.path.exists(path):
        raise Problem(f"There is no file {path!r}; check the name and the folder.")
    if os.path.isdir(path):
        raise Problem(f"{path!r} is a folder; name a .jsonl, .tsv or text file in it.")


def is_pipe(path: str) -> bool:
    """Whether a corpus can be read only once: standard input, a FIFO, or the <(…) of a shell."""
    return path == "-" or any(
        os.path.exists(file) and not os.path.isfile(file) and not os.path.isdir(file)
        for file in split_corpus_path(path)
    )


def make_absolute(path: str) -> str:
    """The corpus with absolute paths, which mean the same in every working directory."""
    if is_pipe(path):
        return path
    parts, (_, fields) = split_corpus_path(path), split_fields(path)
    absolute = ",".join(map(os.path.abspath, parts))
    if absolute.count(",") != len(parts) - 1:
        return path  # a folder with a comma in its name
    return f"{absolute}[{','.join(fields)}]" if fields else absolute


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
