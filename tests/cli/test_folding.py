"""Lists fit the terminal, and a pipe gets whole lines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from noise2text.cli.folding import print_folded

from .conftest import Outcome

LISTS = [
    ("recipes",),
    ("experiment", "--list"),
    ("analyse", "--list"),
    ("data", "--list"),
    ("inspect", "de-en"),
]


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
@pytest.mark.parametrize("columns", [40, 80])
def test_lists_fit_the_terminal(
    columns: int, command: tuple[str, ...], run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = run(*command).out
    monkeypatch.setenv("COLUMNS", str(columns))
    folded = run(*command).out
    assert folded.split() == whole.split()
    wide = [line for line in folded.splitlines() if len(line) > columns]
    assert all(len(line.split()) == 1 for line in wide), "only an address may be wider"


def test_folded_lines_are_indented_more(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_folded("name\n  one two three four five\n\nend")
    assert capsys.readouterr().out == "name\n  one two three four\n    five\n\nend\n"
