"""What a person sees of a run, with and without a terminal."""

import io

import pytest
from rich.console import Console

from noise2text.commands import display
from noise2text.commands.display import TerminalDisplay


def test_without_a_terminal_lines_come_every_few_seconds_with_the_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    with TerminalDisplay.open(Console(file=out, width=200)) as terminal:
        terminal.start(100)
        for step in range(10, 41, 10):
            now[0] += 6
            terminal.progress(step, "loss 1.0")
        terminal.show_line("done")
    lines = out.getvalue().splitlines()
    assert lines == [
        "step 20 of 100  loss 1.0  0:00:48 left",
        "step 40 of 100  loss 1.0  0:00:36 left",
        "done",
    ]


def test_no_time_is_promised_before_any_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    with TerminalDisplay.open(Console(file=out, width=200)) as terminal:
        terminal.start(100)
        now[0] += 20
        terminal.progress(10, "loss 1.0")
    assert out.getvalue() == "step 10 of 100  loss 1.0\n"


def test_in_a_terminal_there_is_a_bar_with_the_numbers() -> None:
    out = io.StringIO()
    with TerminalDisplay.open(Console(file=out, width=200, force_terminal=True)) as terminal:
        terminal.start(100)
        terminal.progress(50, "loss 1.0  nll 0.5")
    assert "50/100" in out.getvalue()
    assert "loss 1.0  nll 0.5" in out.getvalue()


def test_a_second_part_takes_the_place_of_the_first() -> None:
    out = io.StringIO()
    with TerminalDisplay.open(Console(file=out, width=200, force_terminal=True)) as terminal:
        terminal.start(100)
        terminal.progress(50, "first")
        terminal.start(7)
        terminal.progress(3, "second")
        assert len(terminal.bar.tasks) == 1
    assert "3/7" in out.getvalue()


def test_a_run_without_end_has_no_time_left_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    with TerminalDisplay.open(Console(file=out, width=200)) as terminal:
        terminal.start(10**18)
        for step in (1, 2):
            now[0] += 60
            terminal.progress(step, "loss 1.0")
    assert out.getvalue().splitlines()[-1] == f"step 2 of {10**18:,}  loss 1.0"
