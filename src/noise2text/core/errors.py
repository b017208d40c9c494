"""Exceptions for problems that the user can fix, and suggestions for their messages.

The message is one sentence: what is wrong, where, and what to do. The command line prints it
without a traceback and exits with 1.
"""

import difflib
from collections.abc import Iterable

__all__ = ["Problem", "Stopped", "find_closest", "is_out_of_memory", "suggest"]


class Problem(Exception):
    """A mistake in the input, the settings or the files, described in one sentence.

    Every function of the package raises it for what its user can fix. The command line prints the sentence
    without a traceback and exits with 1.

    >>> import noise2text
    >>> try:
    ...     noise2text.list_recipes()["difformer"].preset("huge")
    ... except noise2text.Problem as problem:
    ...     print(str(problem).split(";")[0])
    difformer has no preset 'huge'
    """


class Stopped(Exception):
    """A long job was asked to stop, has saved, and can be resumed; the command line exits with 130."""


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest known name, or all of them."""
    names = list(known)
    closest = find_closest(name, names)
    return f"there are {', '.join(names)}." if closest is None else f"did you mean {closest}?"


def find_closest(name: str, known: Iterable[str]) -> str | None:
    """The known name with the most similar spelling; None if none is similar."""
    return next(iter(difflib.get_close_matches(name, known, n=1)), None)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the memory of the machine or of a GPU does not suffice."""
    if isinstance(error, MemoryError):
        return True
    return any(words in str(error) for words in ("allocate memory", "not enough memory", "out of memory"))
