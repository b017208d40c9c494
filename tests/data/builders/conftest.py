"""Small raw files for the tests, and Moses rules that can be checked by hand."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from noise2text.data.builders.dataset import DatasetRow
from noise2text.data.builders.moses import MosesProcessor
from noise2text.data.builders.raw_files import RawFiles

Write = Callable[..., RawFiles]


class SimpleMoses:
    """Parts marks from words, and compounds where it is asked to; says which language it was asked for."""

    def __init__(self, language: str) -> None:
        self.language = language

    def normalize(self, text: str) -> str:
        return text.replace("“", '"').replace("”", '"')

    def tokenize(self, text: str, *, split_dashes: bool) -> str:
        text = re.sub(r"([.,!?\"])", r" \1 ", text)
        text = text.replace("-", " @-@ ") if split_dashes else text
        return " ".join([*text.split(), f"({self.language})"] if "whose" in text else text.split())


def load_simple_moses(language: str) -> MosesProcessor:
    return SimpleMoses(language)


def write_files(folder: Path, files: dict[str, str]) -> dict[str, Path]:
    """Writes each text under its name, compressed if that ends in .gz."""
    paths = {}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        paths[name.removesuffix(".gz")] = path
    return paths


def splits(rows: Iterable[DatasetRow]) -> dict[str, list[tuple[str, str]]]:
    """The pairs of each split."""
    found: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        if row.pair is not None:
            found.setdefault(row.split, []).append((row.pair.src, row.pair.trg))
    return found


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A function that writes raw files by name and gives them back as a dataset reads them."""
    return lambda files: RawFiles(write_files(tmp_path / "raw", files), load_simple_moses)
