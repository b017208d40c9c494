"""`noise2text synth`: write a synthetic corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.help import GroupedCommands
from noise2text.cli.options import App, app

__all__ = ["dates", "days", "synth"]

synth = App(
    cls=GroupedCommands, help="Write a synthetic corpus.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(synth, name="synth")


@synth.command()
def dates(
    out: Annotated[Path, typer.Option(help="The folder for train.jsonl, valid.jsonl and test.jsonl.")],
    pairs: Annotated[int, typer.Option(help="How many training pairs.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Decides the dates.")] = 0,
) -> None:
    """Dates written out in several formats and languages, and their ISO form."""
    from noise2text.data.dates import write_dates

    write_dates(out, pairs=pairs, seed=seed)
    print(f"{out}: {pairs:,} training pairs, and validation and test pairs of other dates")


@synth.command()
def days(
    out: Annotated[Path, typer.Option(help="The folder for train.jsonl, valid.jsonl and test.jsonl.")],
    pairs: Annotated[int, typer.Option(help="How many training pairs.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Decides the days.")] = 0,
) -> None:
    """A year and one of its days, labeled with the month: a task for guidance."""
    from noise2text.data.dates import write_days

    write_days(out, pairs=pairs, seed=seed)
    print(f"{out}: {pairs:,} training pairs, and validation and test pairs of other days")
