"""Settings and numbers as they are written on the command line."""

from __future__ import annotations

import os
from contextlib import suppress

from noise2text.core.errors import Problem, abbreviate

__all__ = ["decode_argument", "parse_assignments", "parse_numbers", "parse_options", "split_texts"]


def parse_assignments(assignments: list[str] | None) -> dict[str, str]:
    """{"key": "value"} from ["key=value"]."""
    overrides = {}
    for assignment in assignments or []:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise Problem(f"--set takes key=value, not {abbreviate(assignment)}.")
        overrides[name.strip()] = value.strip()
    return overrides


def parse_numbers(text: str, name: str) -> list[int]:
    """[1, 2, 5] from "1,2,5"; `name` is what the message calls the text."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise Problem(f"{name} takes whole numbers above 0, separated by commas, not {abbreviate(text)}.")
    return found


def parse_options(arguments: list[str]) -> dict[str, str]:
    """{"key_of_two": "value"} from ["--key-of-two", "value"] or ["--key-of-two=value"]."""
    overrides, rest = {}, iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if not name.startswith("--"):
            raise Problem(f"Unexpected argument {abbreviate(argument)}; settings are given as --name VALUE.")
        if not equals:
            following = next(rest, None)
            if following is None or following.startswith("--"):
                raise Problem(f"The option {name[:80]} needs a value.")
            value = following
        overrides[name.removeprefix("--").replace("-", "_")] = value
    return overrides


def decode_argument(argument: str) -> str:
    """The argument as UTF-8, also where the locale has another encoding; other bytes stay as they are."""
    try:
        argument.encode()
    except UnicodeEncodeError:  # Python has left bytes in it that the locale does not know
        with suppress(UnicodeError):
            return os.fsencode(argument).decode()
    return argument


def split_texts(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The texts among the arguments, and the options (`--name VALUE` or `--name=VALUE`) with their values."""
    texts, options, rest = [], [], iter(arguments)
    for argument in rest:
        if not argument.startswith("--"):
            texts.append(decode_argument(argument))
        elif "=" in argument:
            options.append(argument)
        else:
            options += [argument, *[value for value in [next(rest, None)] if value is not None]]
    return texts, options
