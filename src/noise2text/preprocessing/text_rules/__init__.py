"""The rules of a pair of languages, from a file of this folder: words, names, and what stands in for them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem

__all__ = ["Placeholder", "TextRules", "list_text_rules", "load_text_rules"]

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Placeholder:
    """What the model reads in place of a value, and the regular expression of what it then writes."""

    reads: str
    writes: str


@dataclass(frozen=True, eq=False)
class TextRules:
    """All that preprocessing knows about a pair of languages; the .toml file explains each field.

    Two are equal if they are one object, so that what is made of them, such as patterns, can be cached.
    """

    language: str
    abbreviations: frozenset[str]
    function_words: frozenset[str]
    question_words: frozenset[str]
    conjunctions: frozenset[str]
    joined_in_lower_case: frozenset[str]
    months: frozenset[str]
    male_names: frozenset[str]
    female_names: frozenset[str]
    placeholders: Mapping[str, tuple[Placeholder, ...]]  # by the kind of value
    place_names: Mapping[str, str]
    currencies: Mapping[str, str]
    titles: Mapping[str, str]
    number_words: Mapping[str, str]


def list_text_rules() -> list[str]:
    """The pairs of languages that have rules, such as de-en."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


@cache
def load_text_rules(name: str) -> TextRules:
    """The rules of a pair of languages.

    >>> load_text_rules("de-en").place_names["Wien"]
    'Vienna'
    """
    if name not in list_text_rules():
        known = ", ".join(list_text_rules())
        raise Problem(f"There are no text rules {name!r}: set text_rules to one of {known}.")
    contents: dict[str, Any] = tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    placeholders = {
        kind: tuple(Placeholder(**each) for each in values)
        for kind, values in contents.pop("placeholders").items()
    }
    fields: dict[str, Any] = {
        key: frozenset(value) if isinstance(value, list) else value for key, value in contents.items()
    }
    return TextRules(placeholders=placeholders, **fields)
