"""The doctor says what there is, how fast it is, and what to install."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable

import pytest
import torch

from noise2text.cli.doctor import print_facts
from noise2text.commands.doctor import examine, find_missing_extras, warn_of_load
from noise2text.core.version import __version__

from .conftest import Outcome


def test_the_doctor_names_versions_devices_and_speed() -> None:
    facts = list(examine(device="cpu", seconds=0.0))
    assert facts[0][0] == "noise2text"
    assert __version__ in facts[0][1]
    assert torch.__version__ in facts[0][1]
    assert any(name.startswith("GPU") for name, _ in facts)
    assert any(name == "speed" and "s per sentence" in fact for name, fact in facts)
    missing = find_missing_extras(importlib.metadata.requires("noise2text") or [])
    listed = [
        ("", f"pip install 'noise2text[{extra}]'  # {', '.join(names)}") for extra, names in missing.items()
    ]
    assert facts[len(facts) - len(listed) :] == listed


def test_the_report_fits_a_terminal_in_two_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    installing = ("", "pip install 'noise2text[hub]'")
    print_facts([("system", "Linux x86_64"), *warn_of_load(15.2, cores=16), installing])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "system      Linux x86_64"
    assert lines[1].startswith("load        other programs use")
    assert all(line.startswith(" " * 12) for line in lines[2:])
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80


@pytest.mark.long
def test_the_command_prints_the_report(run: Callable[..., Outcome]) -> None:
    done = run("doctor", "--device", "cpu")
    assert done.code == 0, done.err
    assert "s per sentence on the CPU" in done.out


def test_what_is_missing_is_listed_by_its_extra() -> None:
    wanted = ["numpy>=2", "torch>=1; extra == 'report'", 'not-there>=1; extra == "report"']
    assert find_missing_extras([*wanted, "not-there; extra == 'dev'"]) == {"report": ["not-there"]}


def test_only_a_busy_machine_is_named_before_its_speed() -> None:
    assert list(warn_of_load(0.9, cores=2)) == []
    ((name, fact),) = warn_of_load(5.2, cores=2)
    assert name == "load"
    assert fact == "other programs use the CPU (5.2 on 2 cores), so the speed below is too low"
