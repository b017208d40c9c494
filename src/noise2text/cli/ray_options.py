"""The options of commands that can run on a Ray cluster; the value of --ray may be left out."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noise2text.cli.help import CommandWithPanels
from noise2text.cli.option_groups import OptionGroup
from noise2text.cli.output import warn

if TYPE_CHECKING:
    from noise2text.commands.generate_on_ray import RecordMaker
    from noise2text.commands.generation_job import GenerationJob

__all__ = ["RayAddress", "RayCommand", "RayJob", "run_on_ray"]

ADDRESS = re.compile(r"auto|local|[^\s/=]+:\d+")


class RayCommand(CommandWithPanels):
    """A command with the option --ray [ADDRESS]: what follows --ray is its value if it is an address."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a --ray without an address an empty one."""
        for at in (at for at, argument in enumerate(args) if argument == "--ray"):
            if at + 1 == len(args) or not ADDRESS.fullmatch(args[at + 1]):
                args = [*args[:at], "--ray=", *args[at + 1 :]]
        return super().parse_args(ctx, args)


class RayAddress(OptionGroup):
    """Whether a command runs on a Ray cluster, and on which: an empty address is any."""

    panel = "Ray"
    address: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="[ADDRESS]",
            help="Run on a Ray cluster, HOST:PORT; by default the one here, or a new one.",
        ),
    ] = None


class RayJob(RayAddress):
    """How a job is spread over a cluster."""

    workers: Annotated[
        int | None, typer.Option(help="With --ray, how many workers; by default one per GPU, or per core.")
    ] = None
    shard_rows: Annotated[
        int, typer.Option(help="With --ray, rows per shard; a worker that dies loses one shard.")
    ] = 10_000


def run_on_ray(
    job: GenerationJob, records: RecordMaker, *, input: str, output: Path, resume: bool, ray: RayJob
) -> None:
    """Run a job on a cluster, with its progress on standard error."""
    from noise2text.commands.display import count_progress
    from noise2text.commands.generate_on_ray import RayOptions, generate_on_ray

    rows = generate_on_ray(
        job,
        records,
        input=input,
        output=output,
        options=RayOptions(**vars(ray)),
        resume=resume,
        show_line=warn,
        show_progress=partial(count_progress, "sentences"),
    )
    warn(f"{output}: {rows:,} texts generated.")
