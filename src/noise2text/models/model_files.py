"""The files of a model folder, written and read as of one moment.

model.safetensors holds the checksums of config.json and tokenizer.json (`core/weights_file.py`) and takes its
name last. A reader that finds a mismatch while another process replaces the files waits and reads them again.
generation_config.json has no checksum: it holds defaults that you may edit, and each value is checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.core.files import write_files_together, write_folder_atomically
from noise2text.core.json_files import parse_json_object, read_ordinary_file
from noise2text.core.locks import lock_output
from noise2text.core.weights_file import WeightsFile, hash_bytes, open_weights, save_weights

__all__ = [
    "CONFIG_FILE",
    "GENERATION_FILE",
    "TOKENIZER_FILE",
    "WEIGHTS_FILE",
    "ModelFiles",
    "open_model_files",
    "write_model_files",
    "write_new_model_folder",
]

CONFIG_FILE, GENERATION_FILE = "config.json", "generation_config.json"
TOKENIZER_FILE, WEIGHTS_FILE = "tokenizer.json", "model.safetensors"

_FEW_READS, _MANY_READS, _PAUSE = 3, 50, 0.1  # the many are for a folder with drafts; seconds


@dataclass(frozen=True)
class ModelFiles:
    """The contents of a model folder; its tensors are not read yet."""

    folder: Path
    texts: Mapping[str, bytes]
    weights: WeightsFile

    def parse(self, name: str) -> dict[str, Any]:
        """The JSON object in one of the files."""
        return parse_json_object(self.texts[name], self.folder / name)

    @property
    def changed_file(self) -> str | None:
        """The name of a file that is not the one that was saved with the weights; None if all are."""
        expected = self.weights.checksums
        return next(
            (n for n, text in self.texts.items() if expected.get(n, "") not in ("", hash_bytes(text))), None
        )

    def require_unchanged(self) -> None:
        """Raise a Problem if a file is not the one that was saved with the weights."""
        if self.changed_file is not None:
            raise Problem(
                f"{self.folder / self.changed_file} is not the file that was saved with {WEIGHTS_FILE}: it "
                f"was changed or damaged, or belongs to another model; copy the whole folder again."
            )


def write_model_files(folder: Path, tensors: Mapping[str, Tensor], texts: Mapping[str, bytes]) -> None:
    """Write the weights with the files that belong to them; files that are the same stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    with_checksum = {name: text for name, text in texts.items() if name != GENERATION_FILE}
    writers: dict[Path, Callable[[Path], object]] = {
        folder / name: partial(_write_bytes, text)
        for name, text in texts.items()
        if not _is_same(folder / name, text)
    }
    writers[folder / WEIGHTS_FILE] = partial(_write_weights, tensors, with_checksum)  # the last to be renamed
    write_files_together(writers)


@contextmanager
def write_new_model_folder(new: Path) -> Iterator[Path]:
    """Context manager: a folder to write a model into, which takes the name `new` when it is whole."""
    with lock_output(new):
        if new.exists():
            raise Problem(f"{new} exists already; name a folder that does not.")
        with write_folder_atomically(new) as draft:
            yield draft


def _write_bytes(text: bytes, path: Path) -> None:
    path.write_bytes(text)


def _write_weights(tensors: Mapping[str, Tensor], files: Mapping[str, bytes], path: Path) -> None:
    save_weights(path, tensors, files=files)


def _is_same(path: Path, text: bytes) -> bool:
    try:
        return path.read_bytes() == text
    except OSError:
        return False


@contextmanager
def open_model_files(folder: Path) -> Iterator[ModelFiles]:
    """Context manager: the files of a folder, of one moment unless `changed_file` names one that is not."""
    with ExitStack() as cleanup:
        for attempt in range(_MANY_READS):
            cleanup.close()
            weights = cleanup.enter_context(open_weights(folder / WEIGHTS_FILE))
            texts = {name: _read(folder / name) for name in (CONFIG_FILE, GENERATION_FILE, TOKENIZER_FILE)}
            files = ModelFiles(folder, texts, weights)
            is_being_written = attempt < _FEW_READS or (folder / f"{WEIGHTS_FILE}.draft").exists()
            if files.changed_file is None or not is_being_written:
                break
            time.sleep(_PAUSE)
        yield files


def _read(path: Path) -> bytes:
    return read_ordinary_file(path, missing="the folder is not a complete model")
