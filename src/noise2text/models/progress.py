"""A progress bar for `generate(progress=True)`: a live line in a terminal, an HTML bar in a notebook.

Elsewhere, such as in a log file, nothing is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["show_progress"]

Advance = Callable[[int], None]
"""Called with the number of items that were finished."""


@contextmanager
def show_progress(total: int, unit: str, *, console: Console | None = None) -> Iterator[Advance]:
    """Context manager: a function to call with the number of items that were finished."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = console or Console(stderr=True)
    if console.is_jupyter:
        yield _show_in_notebook(total, unit)
        return
    columns = (TextColumn(unit), BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(unit, total=total)
        yield lambda count: bar.advance(task, count)


def _show_in_notebook(total: int, unit: str) -> Advance:
    """The bar as HTML, which the notebook updates in place and keeps; rich would need another package."""
    from IPython.display import HTML, display

    finished = 0

    def render() -> HTML:
        bar = f'<progress value="{finished}" max="{max(1, total)}"></progress>'
        return HTML(f"{bar} {finished:,} of {total:,} {unit}")

    shown = display(render(), display_id=True)

    def advance(count: int) -> None:
        nonlocal finished
        finished += count
        shown.update(render())

    return advance
