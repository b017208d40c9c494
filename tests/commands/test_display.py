"""What a person sees of a run, with and without a terminal."""

import io
import time

from rich.console import Console

from noise2text.commands.display import TerminalDisplay, count_progress, show_count, show_elapsed


def test_without_a_terminal_lines_come_every_few_seconds_with_the_time_left() -> None:
    now, out = [100.0], io.StringIO()
    with TerminalDisplay.open(Console(file=out, width=200), clock=lambda: now[0]) as terminal:
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


def test_no_time_is_promised_before_any_is_known() -> None:
    now, out = [100.0], io.StringIO()
    with TerminalDisplay.open(Console(file=out, width=200), clock=lambda: now[0]) as terminal:
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


def test_a_run_without_end_has_no_time_left_to_show() -> None:
    now, out = [100.0], io.StringIO()
    with TerminalDisplay.open(Console(file=out, width=200), clock=lambda: now[0]) as terminal:
        terminal.start(10**18)
        for step in (1, 2):
            now[0] += 60
            terminal.progress(step, "loss 1.0")
    assert out.getvalue().splitlines()[-1] == f"step 2 of {10**18:,}  loss 1.0"


def test_a_count_is_a_line_every_ten_seconds_where_there_is_no_terminal() -> None:
    now, out = [100.0], io.StringIO()
    with show_count("lines", Console(file=out, width=200), clock=lambda: now[0]) as show:
        for lines in range(1000, 6000, 1000):
            now[0] += 6
            show(lines)
    assert out.getvalue().splitlines() == ["2,000 lines", "4,000 lines"]


def test_a_count_is_live_in_a_terminal() -> None:
    out = io.StringIO()
    with show_count("lines", Console(file=out, width=200, force_terminal=True)) as show:
        show(1000)
        show(2000)
    assert "2,000 lines" in out.getvalue()
    assert out.getvalue().endswith("\x1b[?25h\r\x1b[1A\x1b[2K"), "the line is gone at the end"


def test_progress_has_the_time_left_as_plain_lines_outside_a_terminal() -> None:
    out, now = io.StringIO(), [0.0]
    with count_progress("texts", 400, console=Console(file=out, width=20), clock=lambda: now[0]) as advance:
        for _ in range(4):
            now[0] += 6
            advance(50)
    assert out.getvalue() == "100 of 400 texts  0:00:36 left\n200 of 400 texts  0:00:24 left\n"


def test_progress_in_a_terminal_appears_late_and_goes_away() -> None:
    for delay, shown in ((0.0, True), (60.0, False)):
        out = io.StringIO()
        console = Console(file=out, width=80, force_terminal=True)
        with count_progress("texts", 400, console=console, delay=delay) as advance:
            while delay == 0 and "texts" not in out.getvalue():
                advance(0)
            advance(100)
        assert ("of 400 texts" in out.getvalue()) == shown


def test_elapsed_time_appears_late_in_a_terminal_and_nowhere_else() -> None:
    for is_terminal, delay, shown in ((True, 0.0, True), (True, 60.0, False), (False, 0.0, False)):
        out = io.StringIO()
        console = Console(file=out, width=80, force_terminal=is_terminal)
        with show_elapsed("scoring", console=console, delay=delay):
            deadline = time.monotonic() + 20
            while shown and "scoring" not in out.getvalue() and time.monotonic() < deadline:
                time.sleep(0.01)
        assert ("scoring" in out.getvalue()) == shown
        assert not shown or "0:00:00" in out.getvalue()
