"""Mistakes on the command line: one sentence with the nearest name, and where to look.

typer raises them as exceptions of click or, in newer versions, of a click of its own, so they are told apart
by their attributes.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import typer

from noise2text.core.errors import Problem, abbreviate, find_closest

__all__ = [
    "WORDS",
    "UsageError",
    "name_argument",
    "name_command",
    "refuse_unknown_settings",
    "show_usage_error",
]

UsageError: Any = typer.BadParameter.__base__
"""What typer raises for a command line that it does not understand."""

WORDS = "noise2text.words"
"""Where a context keeps the words of its command line."""

MAX_NAME = 80
_RENAMED = {
    ("analyse", "output"): "hyp",
    ("analyse", "pairs"): "test",
    ("bench", "train"): "training",
    ("data", "texts"): "input",
    ("page", "out"): "output",
    ("report", "out"): "output",
    ("report", "pairs"): "test",
}
"""Options of version 0.1, by their command, and their names today."""
_NUMBERS = {"valid integer": "a whole number", "valid number": "a number", "valid float": "a number"}
"""What typer says that a value is not, and what it should be."""


@contextmanager
def name_command(context: Any) -> Iterator[None]:
    """Context manager: a mistake knows its command, which that of a missing value does not by itself."""
    try:
        yield
    except UsageError as error:
        error.ctx = error.ctx or context
        raise


def show_usage_error(error: Any) -> None:
    """Print the sentence for a UsageError, and where to look; the help for a command without any word."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.message, file=sys.stderr)
        return
    command = "noise2text" if error.ctx is None else error.ctx.command_path
    sentence = f"{_explain(error, command.rpartition(' ')[2])} See `{command} -h`."
    print(f"noise2text: {Problem(sentence)}", file=sys.stderr)  # which escapes what a word may hold


def name_argument(parameter: Any) -> str:
    """The name of an argument as --help shows it, in capitals."""
    return str(parameter.metavar or parameter.name).upper()


def refuse_unknown_settings(context: Any, words: Sequence[str]) -> None:
    """Raise a Problem for an option that neither the command nor its model has, if the name of one is close.

    Words that people use for settings, and other names, are left to whatever reads the settings. A model that
    cannot be read is left to whatever loads it.
    """
    from noise2text.core.setting_words import is_known_word

    given = [word.partition("=")[0].removeprefix("--") for word in words if word.startswith("--")]
    pairs = pairwise(["", *words])
    alone = [word for before, word in pairs if not before.startswith("--")]  # not a setting's value
    short = [found[1] for word in alone if (found := re.fullmatch(r"-([A-Za-z][\w-]*)(=.*)?", word, re.S))]
    arguments = [each.name for each in context.command.params if each.param_type_name == "argument"]
    if not (given or short) or not arguments:
        return
    model = str(context.params[arguments[0]])
    settings = _list_settings(model)
    for each in short:  # a text may begin with a dash, too
        if each in _list_options(context) or each.replace("-", "_") in settings:
            raise Problem(
                f"There is no option -{each}; did you mean --{each}? See `{context.command_path} {model} -h`."
            )
    for each in given:
        name = each.replace("-", "_")
        if settings and name not in settings and not is_known_word(name, settings):
            options = [known.replace("_", "-") for known in settings] + _list_options(context)
            closest = find_closest(each, options)
            if closest is not None:
                raise Problem(
                    f"There is no option --{each[:MAX_NAME]}; did you mean --{closest}? See "
                    f"`{context.command_path} {model} -h`."
                )


def _explain(error: Any, command: str) -> str:
    parameter: Any = getattr(error, "param", None)
    option: Any = getattr(error, "option_name", None)
    if hasattr(error, "possibilities"):
        name = option.lstrip("-")
        options = _list_options(error.ctx)
        takes_settings = "set" in options and option.startswith("--")
        explained = _explain_setting(name, error.ctx) if takes_settings else None
        if explained is not None:
            return (
                f"{command} takes settings as --set NAME=VALUE and has no option {option[:MAX_NAME]}; "
                f"{explained}"
            )
        found = _RENAMED.get((command, name)) or find_closest(name, options)
        hint = f"; did you mean --{found}?" if found else "."
        if not found and takes_settings:
            hint = "; settings are given as --set NAME=VALUE."
        return f"There is no option {option[:MAX_NAME]}{hint}"
    if option is not None:
        return f"The option {option} {'needs a' if 'requires' in error.message else 'takes no'} value."
    if parameter is None:
        extra = re.match(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", error.message, re.S)
        if extra:
            hint = ", or name files by their options" if any(map(os.path.exists, extra[1].split())) else ""
            return f"{command} does not take so many words: leave out {abbreviate(extra[1])}{hint}."
        message = str(error.message)
        return message if message.endswith((".", "?")) else f"{message}."
    is_option = parameter.param_type_name == "option"
    name = f"the option {parameter.opts[-1]}" if is_option else name_argument(parameter)
    if hasattr(error, "param_type"):
        return f"{command} needs {name}."
    message = error.message.removeprefix("Value error, ").rstrip(".")
    kind = next((kind for wrong, kind in _NUMBERS.items() if wrong in message), None)
    if kind is not None:
        return f"{name[0].upper()}{name[1:]} takes {kind}."
    return f"{name[0].upper()}{name[1:]} does not take this value: {message[:1].lower()}{message[1:]}."


def _explain_setting(name: str, context: Any) -> str | None:
    """What an option's name stands for among the settings of the recipe in the words; None for nothing."""
    from noise2text.core.config import describe
    from noise2text.core.setting_words import explain_misplaced_setting
    from noise2text.models.registry import list_recipes

    recipes = list_recipes()
    recipe = next((recipes[word] for word in context.meta.get(WORDS, ()) if word in recipes), None)
    if recipe is None:
        return None
    return explain_misplaced_setting(name, [each for each, _, _ in describe(recipe.preset())])


def _list_options(context: Any) -> list[str]:
    """The options of a command, without dashes; none without a command."""
    if context is None:
        return []
    names = [
        name for each in context.command.get_params(context) for name in (*each.opts, *each.secondary_opts)
    ]
    return [name.removeprefix("--") for name in names if name.startswith("--")]


def _list_settings(model: str) -> list[str]:
    """The names of the generation settings of a model; none of a model that cannot be read."""
    from noise2text.core.config import describe
    from noise2text.models.folder import load_config
    from noise2text.models.shipped import find_model_folder

    try:
        _, config = load_config(find_model_folder(model))
    except (Problem, OSError):
        return []
    return [name for name, _, _ in describe(config.generation)]
