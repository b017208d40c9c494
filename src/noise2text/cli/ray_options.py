"""The options of commands that can run on a Ray cluster; the value of --ray may be left out."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noise2text.cli.help import CommandWithPanels
from noise2text.cli.output import warn

if TYPE_CHECKING:
    from noise2text.commands.generate_on_ray import RayOptions, RecordMaker
    from noise2text.commands.generation_job import GenerationJob

__all__ = ["RayCommand", "RayOption", "ShardRowsOption", "WorkersOption", "run_on_ray"]

_PANEL = "Ray"
ADDRESS = re.compile(r"auto|local|[^\s/=]+:\d+")


class RayCommand(CommandWithPanels):
    """A command with the option --ray [ADDRESS]: what follows --ray is its value if it is an address."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a --ray without an address an empty one."""
        for at in (at for at, argument in enumerate(args) if argument == "--ray"):
            if at + 1 == len(args) or not ADDRESS.fullmatch(args[at + 1]):
                args = [*args[:at], "--ray=", *args[at + 1 :]]
        return super().parse_args(ctx, args)


RayOption = Annotated[
    str | None,
    typer.Option(
        metavar="[ADDRESS]",
        help="Run on a Ray cluster, HOST:PORT; by default the one here, or a new one.",
        rich_help_panel=_PANEL,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        help="With --ray, how many workers; by default one per GPU, or per core.", rich_help_panel=_PANEL
    ),
]
ShardRowsOption = Annotated[
    int,
    typer.Option(
        help="With --ray, rows per shard; a worker that dies loses one shard.", rich_help_panel=_PANEL
    ),
]


def run_on_ray(
    job: GenerationJob,
    records: RecordMaker,
    *,
    input: str,
    output: Path,
    resume: bool,
    options: RayOptions,
) -> None:
    """Run a job on a cluster, with its progress on standard error."""
    from noise2text.commands.display import count_progress
    from noise2text.commands.generate_on_ray import generate_on_ray

    rows = generate_on_ray(
        job,
        records,
        input=input,
        output=output,
        options=options,
        resume=resume,
        show_line=warn,
        show_progress=partial(count_progress, "sentences"),
    )
    warn(f"{output}: {rows:,} texts generated.")
