"""Commands run within the process, and small models for them."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noise2text.cli import main

from ..conftest import SMALL, small_changes


class Outcome:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """A function that runs a command as the shell would, into a pipe of no particular width."""
    monkeypatch.delenv("COLUMNS", raising=False)  # which another test's library may have set

    def call(*arguments: object, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["noise2text", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code: Any = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        captured = capsys.readouterr()
        return Outcome(int(code), captured.out, captured.err)

    return call


SETS = [f"--set={name}={value}" for name, value in (SMALL | {"optim.steps": 3, "save_every": 2}).items()]


@pytest.fixture(scope="session")
def model(dates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was trained for three steps."""
    from noise2text import train

    out = tmp_path_factory.mktemp("models") / "run"
    changes = SMALL | {"optim.steps": 3, "save_every": 2}
    files: dict[str, Any] = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    train("difformer", out=out, preset="tiny", changes=changes, device="cpu", **files)
    return out


@pytest.fixture(scope="session")
def teacher(dates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An autoregressive model that was trained for three steps."""
    from noise2text import train

    out = tmp_path_factory.mktemp("models") / "teacher"
    changes = small_changes("transformer", {"optim.steps": 3})
    files: dict[str, Any] = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    train("transformer", out=out, preset="tiny", changes=changes, device="cpu", **files)
    return out
