"""Changes of a generated text that undo what was done to its source, on the text and on its tokens alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Restoration", "restore_text", "restore_tokens"]


@dataclass(frozen=True)
class Restoration:
    """Every match of the pattern becomes what `write` returns for it."""

    pattern: re.Pattern[str]
    write: Callable[[re.Match[str]], str]

    def edits(self, text: str) -> list[tuple[int, int, str]]:
        """Start, end and replacement of every match."""
        return [(*match.span(), self.write(match)) for match in self.pattern.finditer(text)]


def restore_text(text: str, restorations: Sequence[Restoration]) -> str:
    """The text after all restorations, one after the other."""
    return "".join(restore_tokens([text], restorations))


def restore_tokens(tokens: Sequence[str], restorations: Sequence[Restoration]) -> list[str]:
    """The tokens after all restorations, as many as before; joined, they are the joined tokens restored.

    A replacement belongs to the first token that it touches.
    """
    tokens = list(tokens)
    for restoration in restorations:
        for start, end, replacement in reversed(restoration.edits("".join(tokens))):
            tokens = _replace_span(tokens, start, end, replacement)
    return tokens


def _replace_span(tokens: Sequence[str], start: int, end: int, replacement: str) -> list[str]:
    changed, position = [], 0
    for token in tokens:
        low, high = start - position, end - position
        if high > 0 and low < len(token):  # the span touches this token
            inserted = replacement if low >= 0 else ""
            token_after = token[: max(low, 0)] + inserted + token[max(high, 0) :]
        else:
            token_after = token
        changed.append(token_after)
        position += len(token)
    return changed
