"""A file of weights is read as of one moment, also while another process replaces it."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from noise2text.core import weights_file
from noise2text.core.weights_file import read_weights, save_weights


def _replace_by_turns(path: Path, contents: list[bytes], stop: threading.Event) -> None:
    for number in itertools.count():
        if stop.is_set():
            return
        draft = path.with_name("draft")
        draft.write_bytes(contents[number % 2])
        draft.replace(path)


def test_a_file_that_is_replaced_all_the_time_is_read_whole(tmp_path: Path) -> None:
    path, contents = tmp_path / "model.safetensors", []
    for value in (0.0, 1.0):
        save_weights(path, {f"w{number}": torch.full((64, 64), value) for number in range(40)})
        contents.append(path.read_bytes())
    stop = threading.Event()
    writer = threading.Thread(target=_replace_by_turns, args=(path, contents, stop))
    writer.start()
    try:
        values = {float(read_weights(path)["w0"][0, 0]) for _ in range(500)}
    finally:
        stop.set()
        writer.join()
    assert values == {0.0, 1.0}


def test_a_file_that_is_replaced_while_it_is_opened_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """safetensors opens it by name twice, and so might take the header of one and the tensors of another."""
    path, new = tmp_path / "model.safetensors", tmp_path / "new"
    for file, value in ((path, 0.0), (new, 1.0)):
        save_weights(file, {"w": torch.full((4, 4), value)})
    times = 0

    def open_while_replaced(name: Path, **options: Any) -> Any:
        nonlocal times
        opened = safe_open(name, **options)
        times += 1
        if times == 1:
            new.replace(path)
        return opened

    monkeypatch.setattr(weights_file, "safe_open", open_while_replaced)
    assert torch.equal(read_weights(path)["w"], torch.ones(4, 4))
    assert times == 2
