"""Prepared corpora that were damaged or made up are refused in one sentence."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noise2text.core.errors import MAX_MESSAGE, Problem
from noise2text.data.corpus import Pair
from noise2text.data.token_store import TokenStore, prepare
from noise2text.data.tokenizer import Tokenizer, learn_characters

Change = Callable[[Path], object]


@pytest.fixture
def letters() -> Tokenizer:
    return learn_characters(["abcdefgh"])


@pytest.fixture
def folder(letters: Tokenizer, tmp_path: Path) -> Path:
    prepare([Pair("abc", "de"), Pair("f", "gh")], letters, tmp_path, max_source=8, max_target=8)
    return tmp_path


def edit(**changes: Any) -> Change:
    """A change of prepared.json; checksums are left out, as in older folders."""

    def change(folder: Path) -> None:
        metadata = json.loads((folder / "prepared.json").read_text())
        del metadata["checksums"]
        (folder / "prepared.json").write_text(json.dumps(metadata | changes))

    return change


def write_index(array: Any) -> Change:
    def change(folder: Path) -> None:
        edit()(folder)
        np.save(folder / "index.npy", array)

    return change


def write_tokens(tokens: list[int]) -> Change:
    def change(folder: Path) -> None:
        edit()(folder)
        np.array(tokens, dtype="<u2").tofile(folder / "tokens.bin")

    return change


def write_header(header: bytes) -> Change:
    """An index.npy with this header, as numpy would read it."""
    magic = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
    return lambda folder: (folder / "index.npy").write_bytes(magic + header)


def zip_file() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize(
    "change",
    [
        write_header(b"{'descr': '<i4', 'fortran_order': False, 'shape': (1000000000000, 2), }\n"),
        write_header(b"{'descr': '<i4', 'fortran_order': False, 'shape': (2, 2\n"),
        write_header(b"(" * 5000),
        write_header(b"{'descr': ['x'], 'fortran_order': 3, 'shape': 'y'}\n"),
        write_header(b"{'descr': '|O', 'fortran_order': False, 'shape': (2, 2), }\n"),
        lambda folder: (folder / "index.npy").write_bytes(zip_file()),
        lambda folder: (folder / "index.npy").write_bytes(b""),
        write_index(np.array([[3, 2], [-1, 4]], dtype=np.int32)),
        write_index(np.array([[3, 2], [1, 2]], dtype=np.int64)),
        write_index(np.array([[9, 1], [-4, 2]], dtype=np.int32)),
        write_tokens([6, 7, 8, 9, 10, 11, 12, 60_000]),
        edit(report=3),
        edit(report={"pairs": 2}),
        edit(report={"pairs": "2", "skipped": 0, "truncated_sources": 0, "truncated_targets": 0}),
        edit(dtype=["<u2"]),
        edit(dtype="O"),
        edit(max_source=2),
        edit(max_source="many"),
        edit(checksums=3),
        edit(checksums={"../tokens.bin": "x"}),
        edit(checksums={"../../../../../../../../../dev/null": hashlib.sha256().hexdigest()}),
        edit(tokenizer=[]),
        edit(version=[]),
        lambda folder: (folder / "prepared.json").write_text("[" * 100_000),
        lambda folder: (folder / "prepared.json").write_text("3"),
    ],
)
def test_a_damaged_store_is_refused_in_a_sentence(change: Change, folder: Path, letters: Tokenizer) -> None:
    change(folder)
    with pytest.raises(Problem) as problem:
        TokenStore.load(folder, tokenizer=letters)
    assert len(str(problem.value)) <= MAX_MESSAGE


def test_a_flipped_bit_is_noticed(folder: Path, letters: Tokenizer) -> None:
    for name in ("tokens.bin", "index.npy"):
        whole = (folder / name).read_bytes()
        for position in range(len(whole)):
            (folder / name).write_bytes(
                whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]
            )
            with pytest.raises(Problem, match="damaged"):
                TokenStore.load(folder, tokenizer=letters)
        (folder / name).write_bytes(whole)


def test_a_store_without_checksums_is_loaded(folder: Path, letters: Tokenizer) -> None:
    edit()(folder)
    sources, targets = TokenStore.load(folder, tokenizer=letters).get_pairs(np.array([0, 1]))
    assert letters.decode(list(sources)) == ["abc", "f"]
    assert letters.decode(list(targets)) == ["de", "gh"]
