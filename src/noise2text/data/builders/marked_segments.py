"""Translation tests as the workshops publish them: a segment a line, between marks.

    <seg id="1"> Wir haben Hunger. </seg>

As in fairseq's preparation, marks go, a typographic apostrophe becomes a plain one, and entities stay as they
are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from noise2text.data.builders.raw_files import Raw, aligned

__all__ = ["segments"]

OPEN, CLOSE = re.compile(r'<seg id="[0-9]*">\s*'), re.compile(r"\s*</seg>\s*")


def segments(raw: Raw, source: str, target: str) -> Iterator[tuple[str, str]]:
    """The segments of two files side by side."""
    return aligned(_inner(raw, source), _inner(raw, target), f"{source} and {target}")


def _inner(raw: Raw, name: str) -> Iterator[str]:
    for text in raw.texts(name):
        if "<seg id" in text:
            yield CLOSE.sub("", OPEN.sub("", text)).strip().replace("’", "'")
