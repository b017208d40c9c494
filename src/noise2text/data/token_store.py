"""A tokenized corpus on disk, memory-mapped, so that it may be larger than memory.

Its folder contains

- tokens.bin      source₀ target₀ source₁ target₁ …, two bytes per token if the vocabulary allows, else four
- index.npy       (N, 2) the lengths of both sides; loaded into memory, 16 bytes per pair with the offsets
- prepared.json   the counts, the length limits, the tokenizer's fingerprint and the checksums of the other
                  files; written last, so that an interrupted preparation is never taken for a complete one

References are not stored.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from noise2text.core.errors import Problem
from noise2text.core.files import hash_file
from noise2text.core.json_files import read_json_object
from noise2text.data.chunks import take_chunk
from noise2text.data.corpus import Pair, ReadCounts
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer

__all__ = ["METADATA_FILE", "PreparationReport", "TokenStore", "prepare"]

VERSION = 1
CHUNK_SIZE = 4096  # pairs that are tokenized together, or fewer long ones
DTYPES = ("<u2", "<u4")
TOKENS_FILE, INDEX_FILE, METADATA_FILE = "tokens.bin", "index.npy", "prepared.json"


@dataclass(frozen=True)
class PreparationReport:
    """The counts of a preparation: pairs stored, lines skipped, and sides truncated to their limit."""

    pairs: int
    skipped: int
    truncated_sources: int
    truncated_targets: int


@dataclass(frozen=True, eq=False)
class TokenStore:
    """A tokenized corpus; only the lengths and offsets of its pairs are in memory."""

    lengths: np.ndarray  # (N, 2) int32
    report: PreparationReport
    max_source: int
    max_target: int
    _tokens: np.ndarray  # of all pairs, memory-mapped
    _starts: np.ndarray  # (N,) where each pair begins in them

    def __len__(self) -> int:
        return len(self.lengths)

    def get_pairs(self, indices: np.ndarray) -> tuple[RaggedRows, RaggedRows]:
        """The sources and the targets of the pairs with these indices."""
        sources, targets = self.lengths[indices].T
        starts = self._starts[indices]
        return RaggedRows.from_slices(self._tokens, starts, sources), RaggedRows.from_slices(
            self._tokens, starts + sources, targets
        )

    @classmethod
    def load(cls, folder: Path, *, tokenizer: Tokenizer | None = None) -> TokenStore:
        """The corpus in a folder; a Problem if it was prepared with another tokenizer than the given one."""
        folder = Path(folder)
        metadata = _read_metadata(folder)
        if tokenizer is not None and metadata["tokenizer"] != tokenizer.fingerprint:
            raise Problem(
                f"{folder} was prepared with another tokenizer; prepare the corpus again with this one."
            )
        try:
            return cls._open(folder, metadata, vocabulary=None if tokenizer is None else len(tokenizer))
        except Exception as error:  # whatever numpy raises for a file that is not an array
            raise Problem(
                f"The prepared corpus in {folder} is damaged ({str(error)[:200]}); prepare it again."
            ) from error

    @classmethod
    def _open(cls, folder: Path, metadata: Mapping[str, Any], *, vocabulary: int | None) -> TokenStore:
        """The corpus in a folder; an error of any kind if it is damaged."""
        report = PreparationReport(**metadata["report"])
        limits = int(metadata["max_source"]), int(metadata["max_target"])
        mapped = np.load(folder / INDEX_FILE, mmap_mode="r", allow_pickle=False)  # no more than the file has
        if mapped.dtype != np.int32 or mapped.shape != (report.pairs, 2):
            raise ValueError(f"{INDEX_FILE} does not fit {METADATA_FILE}")
        lengths = np.array(mapped)
        if lengths.min(initial=1) < 1 or (lengths.max(axis=0, initial=0) > limits).any():
            raise ValueError(f"{INDEX_FILE} or {METADATA_FILE} was altered")
        if metadata["dtype"] not in DTYPES:
            raise ValueError(f"{METADATA_FILE} was altered")
        dtype = np.dtype(metadata["dtype"])
        size = (folder / TOKENS_FILE).stat().st_size
        if size != int(lengths.sum(dtype=np.int64)) * dtype.itemsize:
            raise ValueError(f"{TOKENS_FILE} has {size} bytes, which does not fit {INDEX_FILE}")
        for name, checksum in metadata.get("checksums", {}).items():  # none in older folders
            if name not in (TOKENS_FILE, INDEX_FILE) or hash_file(folder / name) != checksum:
                raise ValueError(f"{str(name)[:40]} is not the file that was prepared")
        tokens = np.memmap(folder / TOKENS_FILE, dtype=dtype, mode="r").view(np.ndarray)
        if vocabulary is not None and _find_largest(tokens) >= vocabulary:
            raise ValueError(f"{TOKENS_FILE} has tokens beyond the vocabulary of {vocabulary:,}")
        sizes = lengths.sum(axis=1, dtype=np.int64)
        return cls(lengths, report, *limits, tokens, np.cumsum(sizes) - sizes)


def _find_largest(tokens: np.ndarray, chunk: int = 1 << 22) -> int:
    """The largest token; the file is read in chunks."""
    return max(int(tokens[start : start + chunk].max()) for start in range(0, len(tokens), chunk))


def prepare(
    pairs: Iterable[Pair],
    tokenizer: Tokenizer,
    folder: Path,
    *,
    max_source: int,
    max_target: int,
    counts: ReadCounts | None = None,
) -> TokenStore:
    """The pairs as tokens in `folder`: truncated to the limits, and skipped if a side has no tokens.

    `counts` belongs to the reader of the pairs; the lines that it skips meanwhile are added to the report.
    """
    if max_source < 1 or max_target < 1:
        raise Problem(f"The limits are {max_source} and {max_target} tokens; both must be at least 1.")
    dtype = np.dtype(DTYPES[len(tokenizer) > 1 << 16])
    skipped_before = counts.num_skipped if counts else 0
    folder = Path(folder)
    partial = folder / "partial"
    try:
        partial.mkdir(parents=True, exist_ok=True)
        with open(partial / TOKENS_FILE, "wb") as file:
            lengths, report = _write_tokens(
                pairs, tokenizer, file, dtype=dtype, limits=(max_source, max_target)
            )
        skipped = report.skipped + (counts.num_skipped - skipped_before if counts else 0)
        if not len(lengths):
            raise Problem(
                f"None of {skipped} pairs has tokens on both sides; check the corpus and tokenizer."
            )
        np.save(partial / INDEX_FILE, lengths)
        metadata = {
            "format": "noise2text.prepared",
            "version": VERSION,
            "dtype": dtype.str,
            "max_source": max_source,
            "max_target": max_target,
            "report": asdict(report) | {"skipped": skipped},
            "tokenizer": tokenizer.fingerprint,
            "checksums": {name: hash_file(partial / name) for name in (TOKENS_FILE, INDEX_FILE)},
        }
        (partial / METADATA_FILE).write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")
        (folder / METADATA_FILE).unlink(missing_ok=True)  # an older one, so that no mixture looks complete
        for name in (TOKENS_FILE, INDEX_FILE, METADATA_FILE):
            os.replace(partial / name, folder / name)
    except OSError as error:
        raise Problem(f"{folder} cannot be written ({error}); choose another folder or make room.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return TokenStore.load(folder)


def _write_tokens(
    pairs: Iterable[Pair], tokenizer: Tokenizer, file: BinaryIO, *, dtype: np.dtype, limits: tuple[int, int]
) -> tuple[np.ndarray, PreparationReport]:
    """The lengths of the pairs and the counts, after their tokens have been written to the file."""
    index = [np.empty((0, 2), dtype=np.int32)]
    skipped = 0
    truncated = np.zeros(2, dtype=np.int64)
    remaining = iter(pairs)
    while chunk := take_chunk(remaining, CHUNK_SIZE, measure=lambda pair: len(pair.src) + len(pair.trg)):
        sides = tokenizer.encode([pair.src for pair in chunk]), tokenizer.encode([pair.trg for pair in chunk])
        nonempty = [both for both in zip(*sides, strict=True) if all(both)]
        truncated_sides = [
            side[:limit] for both in nonempty for side, limit in zip(both, limits, strict=True)
        ]
        full = np.array([len(side) for both in nonempty for side in both], dtype=np.int32).reshape(-1, 2)
        np.fromiter(chain.from_iterable(truncated_sides), dtype=dtype).tofile(file)
        index.append(np.minimum(full, np.array(limits)).astype(np.int32))
        skipped += len(chunk) - len(nonempty)
        truncated += (full > np.array(limits)).sum(axis=0)
    lengths = np.concatenate(index)
    return lengths, PreparationReport(len(lengths), skipped, int(truncated[0]), int(truncated[1]))


def _read_metadata(folder: Path) -> dict[str, Any]:
    """The contents of prepared.json; a Problem if another version wrote it."""
    path = folder / METADATA_FILE
    if not path.is_file():
        raise Problem(f"There is no finished prepared corpus in {folder}; run `noise2text prepare`.")
    metadata = read_json_object(path)
    if (
        metadata.get("format") != "noise2text.prepared"
        or metadata.get("version") != VERSION
        or not {"tokenizer", "report", "dtype"} <= metadata.keys()
    ):
        raise Problem(
            f"{folder / METADATA_FILE} is not of this version of noise2text; prepare the corpus again."
        )
    return metadata
