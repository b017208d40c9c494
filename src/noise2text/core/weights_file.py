"""model.safetensors: tensors, with checksums of themselves and of the files that belong to them.

The checksums are in the header of the file (its metadata), so that one atomic rename replaces the weights
together with what they must fit:

    tensors         a SHA-256 of the names, types, shapes and values of all tensors
    config.json …   the SHA-256 of each file beside the weights that must be of the same moment

Files without checksums, of other programs or older versions, are read as well. Names, shapes and types are
known before a tensor is read (`WeightsFile.specs`). Matrices that are stored in eight bits
(`weight_storage.py`) are read as float32.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.core.files import require_utf8_name
from noise2text.core.weight_storage import ROW_SCALE, expand_weights

__all__ = [
    "WeightsFile",
    "hash_bytes",
    "open_weights",
    "read_weights",
    "save_weights",
]

CHECKSUMS_KEY = "noise2text.checksums"
TENSORS = "tensors"


def hash_bytes(contents: bytes) -> str:
    """The SHA-256 of the contents of a file."""
    return hashlib.sha256(contents).hexdigest()


def save_weights(
    path: Path, tensors: Mapping[str, Tensor], *, files: Mapping[str, bytes] | None = None
) -> None:
    """Write tensors with their checksum, and those of the `files` that belong to them, by name."""
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    checksums = {TENSORS: _hash_tensors(contiguous)}
    checksums |= {name: hash_bytes(contents) for name, contents in (files or {}).items()}
    save_file(contiguous, path, metadata={"format": "pt", CHECKSUMS_KEY: json.dumps(checksums)})
    _sort_metadata(path)


def _sort_metadata(path: Path) -> None:
    """Order the metadata, which safetensors writes in a random order: the same weights are the same bytes."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header = {"__metadata__": dict(sorted(header.pop("__metadata__").items())), **header}
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        assert len(text) <= size, "the order of the keys does not change the length"
        file.seek(8)
        file.write(text.ljust(size))


def read_weights(path: Path) -> dict[str, Tensor]:
    """All tensors of a file, on the CPU, if they are as they were saved, and finite."""
    with open_weights(path) as weights:
        return weights.read()


@dataclass(frozen=True)
class WeightsFile:
    """An open file of weights; it stays the same if another process replaces the file meanwhile."""

    path: Path
    stored_specs: Mapping[str, tuple[str, tuple[int, ...]]]  # type, such as F32, and shape of each tensor
    checksums: Mapping[str, str]  # none in files of other programs
    _file: Any

    @property
    def specs(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The type and shape of each tensor as `read` returns it."""
        scaled = {name for name in self.stored_specs if name + ROW_SCALE in self.stored_specs}
        return {
            name: ("F32" if name in scaled else dtype, shape)
            for name, (dtype, shape) in self.stored_specs.items()
            if name.removesuffix(ROW_SCALE) not in scaled or name in scaled
        }

    @property
    def num_elements(self) -> int:
        """The number of values in all tensors."""
        return sum(torch.Size(shape).numel() for _, shape in self.specs.values())

    def read(self) -> dict[str, Tensor]:
        """All tensors; a Problem if one is not as it was saved or holds NaN or infinity."""
        tensors = {name: self._file.get_tensor(name) for name in self.stored_specs}
        if self.checksums and self.checksums[TENSORS] != _hash_tensors(tensors):
            raise Problem(
                f"{self.path} is damaged: its weights are not those that were saved; copy it again."
            )
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and not _is_finite(tensor):
                raise Problem(
                    f"{self.path} holds values that are not finite numbers, in {name[:100]}: the file is "
                    f"damaged, or training diverged; use another checkpoint."
                )
        return expand_weights(tensors)


@contextmanager
def open_weights(path: Path) -> Iterator[WeightsFile]:
    """Context manager: the file with its header read; nothing is allocated for tensors yet."""
    require_utf8_name(path)
    if not path.exists():
        raise Problem(f"{path} is missing: the folder is not a complete model.")
    if not path.is_file():
        raise Problem(f"{path} is not a file: the folder is not a complete model.")
    if not os.access(path, os.R_OK):  # which safetensors would call missing
        raise Problem(f"{path} cannot be read (Permission denied): check its permissions.")
    try:
        with _open_unreplaced(path) as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118, it is no mapping
            specs = {name: (each.get_dtype(), tuple(each.get_shape())) for name, each in slices.items()}
            yield WeightsFile(path, specs, _read_checksums(file.metadata(), path), file)
    except (OSError, SafetensorError, ValueError, OverflowError) as error:
        raise Problem(f"{path} is not a whole safetensors file ({error}); copy it again.") from error


def _open_unreplaced(path: Path) -> Any:
    """The file, opened by safetensors, which opens it by name twice: for its header and for its tensors.

    It is opened again if another process has replaced it in between.
    """
    while True:
        before = os.stat(path)
        opened = safe_open(path, framework="pt", device="cpu")
        after = os.stat(path)
        if (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns):
            return opened


def _read_checksums(metadata: Mapping[str, str] | None, path: Path) -> dict[str, str]:
    text = (metadata or {}).get(CHECKSUMS_KEY)
    if text is None:
        return {}
    try:
        checksums = json.loads(text)
    except (ValueError, RecursionError):
        checksums = None
    if not isinstance(checksums, dict) or not isinstance(checksums.get(TENSORS), str):
        raise Problem(f"{path} is damaged: its checksums cannot be read; copy it again.")
    return checksums


def _hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _is_finite(tensor: Tensor) -> bool:
    """Whether all values are finite; mostly a finite sum shows it, which needs no second tensor."""
    return bool(torch.isfinite(tensor.sum(dtype=torch.float32))) or bool(torch.isfinite(tensor).all())
