"""The command line itself, and the options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "PAIRS",
    "PAIRS_OR_PREPARED",
    "ConfigOption",
    "DeviceOption",
    "JsonOption",
    "SetOption",
    "SkipBadOption",
    "app",
    "synth",
]

app = typer.Typer(
    name="noise2text",
    help="Turns noise into text: diffusion models for sequence-to-sequence generation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
synth = typer.Typer(help="Write a synthetic corpus.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(synth, name="synth")

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1; the GPU when there is one.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated.")
]
ConfigOption = Annotated[Path | None, typer.Option(help="A YAML file of settings.")]
SkipBadOption = Annotated[bool, typer.Option("--skip-bad", help="Leave bad lines out and count them.")]
PAIRS = "JSON Lines, TSV, SOURCE,TARGET files or - (each may be .gz)."
PAIRS_OR_PREPARED = f"{PAIRS.rstrip('.')}, or a prepared folder."
