"""JSON objects from files that others may have written: of limited size, and one sentence if they are bad."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem
from noise2text.core.files import read_limited

__all__ = ["MAX_JSON_BYTES", "parse_json_object", "read_json_object", "read_ordinary_file", "to_json"]

MAX_JSON_BYTES = 100_000_000
"""The largest JSON file that is read, in bytes; the tokenizers of large vocabularies have 30 million."""


def read_json_object(path: Path, *, missing: str = "the folder is not complete") -> dict[str, Any]:
    """The JSON object in a file; `missing` says what is wrong if there is no such file."""
    return parse_json_object(read_ordinary_file(path, missing=missing), path)


def read_ordinary_file(path: Path, *, missing: str = "the folder is not complete") -> bytes:
    """The contents of a file; a Problem if it is absent or too large, or a pipe, on which one would wait."""
    try:
        if not path.exists():
            raise Problem(f"{path} is missing: {missing}.")
        if not path.is_file():
            raise Problem(f"{path} is not a file: {missing}.")
        return read_limited(path, MAX_JSON_BYTES)
    except OSError as error:
        raise Problem(f"{path} cannot be read ({error.strerror}): check its permissions.") from error


def parse_json_object(contents: bytes, path: Path) -> dict[str, Any]:
    """The JSON object in the contents of a file; `path` names the file in messages."""
    try:
        value = json.loads(contents.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        reason = "too many levels" if isinstance(error, RecursionError) else str(error)[:100]
        raise Problem(f"{path} is not whole JSON ({reason}); copy it again.") from error
    if not isinstance(value, dict):
        raise Problem(f"{path} is not a JSON object; was it written by another program?")
    return value


def to_json(value: Any) -> bytes:
    """The contents of a JSON file that people may read."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
