"""Translation test sets in the SGML of the workshops: one segment per line, between tags.

    <seg id="1"> Wir haben Hunger. </seg>

As in fairseq's preparation, tags are removed, typographic apostrophes become plain ones, and entities stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from noise2text.data.builders.raw_files import RawFiles, zip_parallel

__all__ = ["read_segments"]

SEGMENT_START, SEGMENT_END = re.compile(r'<seg id="[0-9]*">\s*'), re.compile(r"\s*</seg>\s*")


def read_segments(raw: RawFiles, source: str, target: str) -> Iterator[tuple[str, str]]:
    """The pairs of segments of two parallel files."""
    return zip_parallel(
        _read_segment_texts(raw, source), _read_segment_texts(raw, target), f"{source} and {target}"
    )


def _read_segment_texts(raw: RawFiles, name: str) -> Iterator[str]:
    for text in raw.read_texts(name):
        if "<seg id" in text:
            yield SEGMENT_END.sub("", SEGMENT_START.sub("", text)).strip().replace("’", "'")
