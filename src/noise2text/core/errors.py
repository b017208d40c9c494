"""Exceptions for problems that the user can fix, and suggestions for their messages.

The message is one sentence: what is wrong, where, and what to do. The command line prints it
without a traceback and exits with 1.
"""

import difflib
import itertools
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = [
    "MAX_MESSAGE",
    "Problem",
    "Stopped",
    "abbreviate",
    "find_closest",
    "is_out_of_memory",
    "list_some",
    "suggest",
]

MAX_MESSAGE = 500
"""The longest message of a Problem in characters; the middle of a longer one is left out."""

_MAX_NAME = 100  # no name is longer, and comparing spellings takes time
_MAX_VALUE = 80
_MAX_LIST = 350  # characters


class Problem(Exception):
    """A mistake in the input, the settings or the files, described in one sentence.

    Every function of the package raises it for what its user can fix. The command line prints the sentence
    without a traceback and exits with 1.

    Args:
        message: the sentence.

    >>> import noise2text
    >>> try:
    ...     noise2text.list_recipes()["difformer"].preset("huge")
    ... except noise2text.Problem as problem:
    ...     print(str(problem).split(";")[0])
    difformer has no preset 'huge'
    """

    def __init__(self, message: str) -> None:
        """Control characters, which a file may have brought in, are escaped; a terminal would obey them."""
        message = "".join(
            each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode()
            for each in message
        )
        if len(message) > MAX_MESSAGE:  # it repeats something long, and ends with what to do
            start = MAX_MESSAGE * 3 // 5
            message = f"{message[:start]} … {message[start + 3 - MAX_MESSAGE :]}"
        super().__init__(message)


class Stopped(Exception):
    """A long job was asked to stop, has saved, and can be resumed; the command line exits with 130."""


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest known name, or all of them."""
    names = list(known)
    closest = find_closest(name, names)
    return f"there are {list_some(names)}." if closest is None else f"did you mean {closest}?"


def list_some(names: Sequence[str]) -> str:
    """The names, separated by commas; of very many, the first ones and how many more there are."""
    shown = list(
        itertools.takewhile(lambda n: len(", ".join(names[:n])) <= _MAX_LIST, range(1, len(names) + 1))
    )
    more = len(names) - len(shown)
    return ", ".join(names[: len(shown)]) + (f" and {more} more" if more else "")


def find_closest(name: str, known: Iterable[str]) -> str | None:
    """The known name with the most similar spelling; None if none is similar."""
    return next(iter(difflib.get_close_matches(str(name)[:_MAX_NAME], known, n=1)), None)


def abbreviate(value: Any) -> str:
    """The value for a message, at most about 80 characters, however large or nested it is.

    >>> from noise2text.core.errors import abbreviate
    >>> abbreviate("x"), abbreviate([1, [2]])
    ("'x'", '[1, [2]]')
    >>> abbreviate("x" * 1000)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'… (1,000 characters)"
    """
    if isinstance(value, str):
        text = repr(value[:_MAX_VALUE])
        if len(value) <= _MAX_VALUE and len(text) <= _MAX_VALUE + 2:
            return text
        return f"{text[: _MAX_VALUE // 2]}'… ({len(value):,} characters)"
    if isinstance(value, int) and value.bit_length() > 4 * _MAX_VALUE:
        return f"a number of {value.bit_length():,} bits"
    try:
        text = _REPR.repr(value)
    except (ValueError, RecursionError):  # such as a list that contains thousands of digits
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"


_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxstring, _REPR.maxother, _REPR.maxlong = 3, 30, 40, 40


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the memory of the machine or of a GPU does not suffice."""
    if isinstance(error, MemoryError):
        return True
    return any(words in str(error) for words in ("allocate memory", "not enough memory", "out of memory"))
