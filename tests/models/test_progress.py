"""Progress while generating: a bar in a terminal and in a notebook, nothing in a file."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from noise2text.models.progress import show_progress

from ..conftest import Make


def test_a_terminal_shows_how_many_are_finished() -> None:
    file = io.StringIO()
    with show_progress(7, "texts", console=Console(file=file, force_terminal=True, width=80)) as advance:
        advance(3)
        advance(4)
    assert "7/7" in file.getvalue()


def test_a_file_stays_empty() -> None:
    file = io.StringIO()
    with show_progress(7, "texts", console=Console(file=file)) as advance:
        advance(7)
    assert file.getvalue() == ""


def test_a_notebook_gets_a_bar_that_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, html: object) -> None:
            shown.append(html.data)  # type: ignore[attr-defined]

    def display(html: object, *, display_id: bool) -> Handle:
        assert display_id
        Handle().update(html)
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    with show_progress(7, "texts", console=Console(force_jupyter=True)) as advance:
        advance(3)
    assert ["0 of 7 texts" in shown[0], "3 of 7 texts" in shown[1], len(shown)] == [True, True, 2]


def test_progress_changes_no_text(small: Make) -> None:
    model, texts = small(), ["7 april", "", "12. mai"]
    options: dict[str, Any] = {"steps": 3, "stop_early": 0}
    assert model.generate(texts, progress=True, **options).texts == model.generate(texts, **options).texts
