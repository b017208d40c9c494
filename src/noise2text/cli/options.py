"""The command-line application, and the options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command_from_info, get_command_name
from typer.models import CommandInfo

from noise2text.cli.help import CommandWithPanels, GroupedCommands
from noise2text.cli.option_groups import OptionGroup, declare_options

__all__ = [
    "COMMAND_GROUPS",
    "EXTRA_OPTIONS",
    "FILES",
    "HARDWARE",
    "PAIRS",
    "PAIRS_OR_PREPARED",
    "SAME_WORDS",
    "SETTINGS",
    "App",
    "ConfigOption",
    "Device",
    "DeviceOption",
    "FieldsOption",
    "Hardware",
    "JsonOption",
    "PrecisionOption",
    "SeedOption",
    "SetOption",
    "SkipBadOption",
    "app",
]

COMMAND_GROUPS: dict[str, tuple[str, ...]] = {
    "First steps": ("demo", "doctor"),
    "Train, generate, evaluate": (
        "train",
        "generate",
        "chat",
        "page",
        "serve",
        "evaluate",
        "compare",
        "vote",
    ),
    "Data": ("data", "prepare", "distill", "synth"),
    "Models": ("recipes", "config", "inspect", "bench", "export", "convert", "check-recipe"),
    "More ways to train and generate": ("train-classifier", "sample", "rescale"),
    "Research": ("analyse", "experiment", "report", "published"),
}
"""The commands in the order and under the headings in which --help lists them."""


class _RootCommand(GroupedCommands):
    """The command `noise2text`, which builds only the command that is called: to build all takes longer."""

    groups = COMMAND_GROUPS

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, (function, _) in app.unbuilt.items():  # enough to list them
            self.add_command(CommandWithPanels(name, help=getdoc(function)))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in app.unbuilt:
            self.add_command(app.build(cmd_name))
        return super().get_command(ctx, cmd_name)


class App(typer.Typer):
    """An application whose commands group their options (option_groups.py)."""

    def command(self, name: str | None = None, **settings: Any) -> Any:
        add = super().command(name, **({"cls": CommandWithPanels} | settings))

        def decorate(function: Callable[..., None]) -> Callable[..., None]:
            return add(declare_options(function))

        return decorate


class _RootApp(App):
    """An application that keeps its commands until they are called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.unbuilt: dict[str, tuple[Callable[..., None], dict[str, Any]]] = {}

    def command(self, name: str | None = None, **settings: Any) -> Any:
        def decorate(function: Callable[..., None]) -> Callable[..., None]:
            self.unbuilt[name or get_command_name(function.__name__)] = function, settings
            return function

        return decorate

    def build(self, name: str) -> Any:
        """The command of this name, with its options."""
        function, settings = self.unbuilt[name]
        command = CommandInfo(
            name, callback=declare_options(function), **({"cls": CommandWithPanels} | settings)
        )
        return get_command_from_info(command, pretty_exceptions_short=False, rich_markup_mode=None)


app = _RootApp(
    name="noise2text",
    cls=_RootCommand,
    help="Turns noise into text: diffusion models for sequence-to-sequence generation.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

EXTRA_OPTIONS: dict[str, Any] = {"allow_extra_args": True, "ignore_unknown_options": True}
"""The context of a command that takes every generation setting as an option, e.g. --steps 10."""

FILES = "Input and output"
SETTINGS = "Settings"
HARDWARE = "Hardware"
"""The headings under which --help lists the options that many commands share."""

SAME_WORDS: dict[str, str] = {
    "--out": "the folder that is written",
    "--output": "the file that is written (with `--ray`, it may be a folder of files)",
    "--input": "the texts that are read",
    "--train, --valid, --test": "pairs, or labelled texts: to train on, to choose by, to measure with",
    "--hyp, --ref, --src": "one side alone, line by line: generated texts, references, sources",
    "--pairs": "how many pairs",
    "--set": "a setting and its value",
}
"""The options that mean the same in every command, and what they mean."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
SeedOption = Annotated[int, typer.Option(help="Decides the noise.", rich_help_panel=SETTINGS)]
PrecisionOption = Annotated[
    str, typer.Option(help="float32, bfloat16, int8 (on a CPU) or auto.", rich_help_panel=HARDWARE)
]
DeviceOption = Annotated[
    str | None,
    typer.Option(help="cpu, cuda or cuda:1; by default a GPU if there is one.", rich_help_panel=HARDWARE),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting; may be repeated.",
        rich_help_panel=SETTINGS,
    ),
]
ConfigOption = Annotated[Path | None, typer.Option(help="A YAML file of settings.", rich_help_panel=SETTINGS)]
SkipBadOption = Annotated[
    bool,
    typer.Option(
        "--skip-bad", help="Skip and count bad lines, up to a tenth of a file.", rich_help_panel=FILES
    ),
]
FieldsOption = Annotated[
    str | None,
    typer.Option(
        metavar="SOURCE,TARGET",
        help="The columns or fields of the texts, e.g. de,en.",
        rich_help_panel=FILES,
    ),
]


class Device(OptionGroup):
    """Where it runs."""

    panel = HARDWARE
    device: DeviceOption = None


class Hardware(Device):
    """Where it runs, and with which numbers."""

    precision: PrecisionOption = "auto"


PAIRS = "JSON Lines, JSON, CSV, TSV, Parquet, SOURCE,TARGET files or -."
PAIRS_OR_PREPARED = f"{PAIRS.rstrip('.')}, or a prepared folder."
