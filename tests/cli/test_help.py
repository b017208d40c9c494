"""--help: every option once, under a heading, at any width and without colour."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from noise2text.cli import app
from noise2text.cli.help import CommandWithPanels, GroupedCommands
from noise2text.cli.options import SAME_WORDS
from noise2text.core.config import describe
from noise2text.models.folder import load_config

from .conftest import Outcome

ROOT: Any = typer.main.get_command(app)
COMMANDS: dict[str, Any] = {name: ROOT.get_command(None, name) for name in ROOT.commands}


@pytest.mark.parametrize("columns", [40, 80])
def test_help_fits_the_terminal_without_color(
    columns: int, run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for command in ([], *([name] for name in COMMANDS)):
        shown = run(*command, "-h").out
        assert "\x1b" not in shown
        assert max(map(len, shown.splitlines())) <= columns, command


@pytest.mark.parametrize("command", COMMANDS)
def test_help_lists_every_option_once(command: str, run: Callable[..., Outcome]) -> None:
    sections = re.split(r"^\w.*:$", run(command, "-h").out, maxsplit=1, flags=re.M)[1]
    listed = Counter(re.findall(r"^  (?:-h, )?(--[a-z-]+)", sections, re.M))
    options = [each.opts[-1] for each in COMMANDS[command].params if each.param_type_name == "option"]
    assert listed == Counter([*options, "--help"])


def test_a_word_is_the_same_thing_in_every_command() -> None:
    """--out is a folder, --output a file, --test has pairs and --pairs is a number."""
    leaves = [leaf for each in COMMANDS.values() for leaf in getattr(each, "commands", {"": each}).values()]
    explained: dict[str, set[str]] = {}
    for command in leaves:
        for each in command.params:
            if each.param_type_name == "option":
                explained.setdefault(each.opts[-1], set()).add(each.help)
    assert all("folder" in text for text in explained["--out"])
    assert all("folder" not in text for text in explained["--output"])
    assert all(re.search("file|corpus", text) for text in explained["--output"])
    assert all(re.search("texts?|corpus", text, re.I) for text in explained["--input"])
    for split, name in (
        ("--train", "[Tt]raining"),
        ("--valid", "[Vv]alidation"),
        ("--test", "[Tt]est pairs"),
    ):
        assert all(re.search(name, text) for text in explained[split]), split
    assert all(re.match("How many|Pairs of texts on --sheet", text) for text in explained["--pairs"])
    assert {word for words in SAME_WORDS for word in words.split(", ")} <= explained.keys()


def test_arguments_are_in_capitals_without_their_types(run: Callable[..., Outcome]) -> None:
    shown = run("generate", "-h").out
    assert shown.startswith("Usage: noise2text generate [OPTIONS] MODEL [TEXT]...\n")
    assert re.search(r"^  MODEL +A model folder", shown, re.M)
    assert re.search(r"^  TEXT +The texts", shown, re.M)


def test_every_command_groups_its_options() -> None:
    assert all(isinstance(each, CommandWithPanels | GroupedCommands) for each in COMMANDS.values())


def test_options_are_under_headings_in_the_order_of_a_job(run: Callable[..., Outcome]) -> None:
    headings = re.findall(r"^(\w.*):$", run("train", "-h").out, re.M)
    assert headings == ["Arguments", "Input and output", "Settings", "Resuming", "Hardware", "Options"]


def test_help_for_a_model_lists_its_settings_with_its_values(run: Callable[..., Outcome]) -> None:
    general, special = run("generate", "-h").out, run("generate", "de-en", "-h").out
    assert special.startswith(general.rstrip("\n"))
    extra = " ".join(special[len(general) :].split())
    _, config = load_config(Path("de-en"))
    for name, value, _ in describe(config.generation):
        found = re.search(rf"--{name.replace('_', '-')} .*?\[default: (.*?)\]", extra)
        assert found
        assert found[1].lower() == ("none" if value == "" else str(value).lower())


def test_help_for_no_model_is_the_general_one(run: Callable[..., Outcome], tmp_path: Path) -> None:
    assert run("generate", tmp_path / "missing", "-h").out == run("generate", "-h").out
