"""Tokenize a corpus into memory-mapped files, once for many runs.

While it works, the folder holds prepare.draft, which records the request: the same command, started again
after it was killed, keeps the tokenizer and the set that are complete and does the rest.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from noise2text.commands.run_data import TrainingData, load_data
from noise2text.commands.run_setup import change_config
from noise2text.core.errors import Problem
from noise2text.core.files import require_empty, write_text_file
from noise2text.core.locks import lock_folder
from noise2text.data.corpus_paths import fingerprint_corpus, make_absolute
from noise2text.models.registry import find_recipe

__all__ = ["prepare"]

REQUEST_FILE = "prepare.draft"


def prepare(
    train: str,
    valid: str,
    *,
    out: Path,
    recipe: str = "difformer",
    preset: str | None = None,
    config: Path | None = None,
    changes: Mapping[str, Any] | None = None,
    skip_bad: bool = False,
    show_line: Callable[[str], None] = print,
) -> TrainingData:
    """The tokenized pairs, which are now in OUT/train and OUT/valid."""
    settings = change_config(find_recipe(recipe).preset(preset), config, changes, recipe=recipe)
    with lock_folder(out):
        request = _describe_request({"train": train, "valid": valid}, settings, skip_bad=skip_bad)
        is_new = _begin(out, request)
        try:
            data = load_data(train, valid, out, settings, skip_bad=skip_bad, show_line=show_line)
        except Problem:
            if is_new:
                _discard(out)
            raise
        (out / REQUEST_FILE).unlink()
        return data


def _describe_request(files: Mapping[str, str], settings: Any, *, skip_bad: bool) -> str:
    """Everything that decides what is written, as JSON."""
    request = {
        "files": {name: make_absolute(file) for name, file in files.items()},
        "corpora": {name: fingerprint_corpus(file) for name, file in files.items()},
        "data": asdict(settings.data),
        "skip_bad": skip_bad,
    }
    return json.dumps(request, indent=2)


def _begin(out: Path, request: str) -> bool:
    """Whether the folder was empty; otherwise it holds what a killed process has done of the same request."""
    file = out / REQUEST_FILE
    if not file.exists():
        (out / f"{REQUEST_FILE}.draft").unlink(missing_ok=True)
        require_empty(out)
        write_text_file(file, request)
        return True
    if file.read_text("utf-8") != request:
        raise Problem(
            f"{out} holds an unfinished preparation of another corpus or with other settings: finish it with "
            f"its own command, or delete the folder."
        )
    return False


def _discard(out: Path) -> None:
    """Remove what was written, so that the folder is empty again."""
    for name in ("train", "valid"):
        shutil.rmtree(out / name, ignore_errors=True)
    for path in (out / "tokenizer.json", out / REQUEST_FILE, *out.glob("piped-*.jsonl")):
        path.unlink(missing_ok=True)
