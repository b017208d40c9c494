"""How --help reads: options under headings, whole at any width, and the settings of the model at hand."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar

from typer.core import TyperCommand, TyperGroup

from noise2text.cli.usage_errors import WORDS, name_argument, name_command, refuse_unknown_settings
from noise2text.core.errors import Problem, abbreviate, find_closest

__all__ = ["CommandWithPanels", "GroupedCommands"]

_NARROW = 60
"""Below this many columns, an explanation begins under its option, not beside it."""


class CommandWithPanels(TyperCommand):
    """A command whose --help lists options by their `rich_help_panel`, without colour or frames."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = list(args)  # --help ends the parsing before the model is known
        before_texts = args[: args.index("--")] if "--" in args else list(args)
        with name_command(ctx):
            left = super().parse_args(ctx, args)
        if ctx.allow_extra_args and not ctx.resilient_parsing:
            words = [*ctx.args, *(ctx.params.get("arguments") or ())]
            refuse_unknown_settings(ctx, [word for word in words if word in before_texts])
        return left

    def get_help(self, ctx: Any) -> str:
        _fit_terminal(ctx)
        return super().get_help(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words after the command's name: [OPTIONS], and its arguments in capitals."""
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        return ["[OPTIONS]", *map(_show_argument, arguments)]

    def help_rows(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """Each argument and option with its explanation, by the heading that it is under."""
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                panels["Arguments"].append((name_argument(parameter), record[1]))
            else:
                panel = getattr(parameter, "rich_help_panel", None) or "Options"
                panels.setdefault(panel, []).append(record)
        return panels

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels = self.help_rows(ctx)
        panels["Options"] = panels.pop("Options")  # last, with --help
        if ctx.allow_extra_args:
            panels |= _settings_of_model(ctx.meta.get(WORDS, []))
        for heading, rows in panels.items():
            _write_rows(formatter, heading, rows)


class GroupedCommands(TyperGroup):
    """A command whose --help lists its commands under headings."""

    groups: ClassVar[dict[str, tuple[str, ...]]] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with name_command(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name = args[0]
        if not (name.startswith("-") or ctx.resilient_parsing) and self.get_command(ctx, name) is None:
            closest = find_closest(name, self.commands)
            hint = "." if closest is None else f"; did you mean {closest}?"
            ctx.fail(f"There is no command {abbreviate(name)}{hint}")
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: Any) -> str:
        _fit_terminal(ctx)
        return super().get_help(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands)) if formatter.width >= _NARROW else 0
        for heading, names in (self.groups or {"Commands": tuple(self.commands)}).items():
            rows = [
                (name.ljust(width), self.commands[name].get_short_help_str(limit=200))
                for name in names
                if name in self.commands
            ]
            _write_rows(formatter, heading, rows)


def _show_argument(parameter: Any) -> str:
    """The argument as the usage line has it: [TEXT]... may be left out or repeated."""
    name = name_argument(parameter)
    return (name if parameter.required else f"[{name}]") + ("..." if parameter.nargs == -1 else "")


def _fit_terminal(ctx: Any) -> None:
    """Let help be as narrow as the terminal; by itself it is never narrower than 50 columns."""
    ctx.terminal_width = max(20, min(80, shutil.get_terminal_size().columns) - 2)


def _write_rows(formatter: Any, heading: str, rows: list[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(heading):
            formatter.write_dl(rows, col_max=30 if formatter.width >= _NARROW else 8)


def _settings_of_model(words: list[str]) -> dict[str, list[tuple[str, str]]]:
    """The generation settings of the model that the command line names, with their values."""
    name = next((word for word in words if not word.startswith("-")), None)
    if name is None:
        return {}
    from noise2text.core.config import describe
    from noise2text.models.folder import load_config

    try:
        _, config = load_config(Path(name))
    except (Problem, OSError):
        return {}
    return {
        f"Settings of {name}": [
            (f"--{setting.replace('_', '-')}", f"{explanation}  [default: {_show(value)}]")
            for setting, value, explanation in describe(config.generation)
        ]
    }


def _show(value: Any) -> str:
    if value is None or value == "":
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
