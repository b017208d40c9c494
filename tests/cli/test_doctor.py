"""The doctor says what there is, how fast it is, and what to install."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable

import pytest
import torch

from noise2text.commands import doctor
from noise2text.core.version import __version__

from .conftest import Outcome


def test_the_doctor_names_versions_devices_and_speed(
    run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("SECONDS", 0.0), ("BATCH", 1), ("SENTENCE", "Guten Morgen.")):
        monkeypatch.setattr(doctor, name, value)
    done = run("doctor", "--device", "cpu")
    assert done.code == 0, done.err
    assert __version__ in done.out
    assert torch.__version__ in done.out
    assert "GPU" in done.out
    assert "s per sentence" in done.out


def test_what_is_missing_comes_with_its_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["torch>=2", "here>=1; extra == 'report'", 'gone>=1; extra == "report"', "gone; extra == 'dev'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: wanted)

    def version(name: str) -> str:
        if name == "gone":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert doctor.find_missing_extras() == {"report": ["gone"]}
    monkeypatch.setattr(doctor, "list_shipped_models", list)
    assert list(doctor.examine())[-2:] == [
        "everything else is optional and not installed:",
        "  pip install 'noise2text[report]'  # gone",
    ]
