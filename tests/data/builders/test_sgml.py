"""Segments between tags."""

from __future__ import annotations

import pytest

from noise2text.core.errors import Problem
from noise2text.data.builders.sgml import read_segments

from .conftest import Write

GERMAN = """<?xml version="1.0" encoding="UTF-8"?>
<refset setid="test" srclang="german">
<doc docid="1">
<title>Hunger</title>
<seg id="1"> Wir haben Hunger &amp; Durst. </seg>
  <seg id="2">Das war’s.</seg>
</doc>
</refset>
"""
ENGLISH = '<doc>\n<seg id="1">We are hungry.</seg>\n<seg id="12"> That’s it. </seg>\n</doc>\n'


def test_only_segments_count_and_their_entities_stay(write: Write) -> None:
    raw = write({"de.xml": GERMAN, "en.xml.gz": ENGLISH})
    assert list(read_segments(raw, "de.xml", "en.xml")) == [
        ("Wir haben Hunger &amp; Durst.", "We are hungry."),
        ("Das war's.", "That's it."),
    ]


def test_a_side_with_fewer_segments_is_a_problem(write: Write) -> None:
    raw = write({"de.xml": GERMAN, "en.xml": "<doc></doc>\n"})
    with pytest.raises(Problem, match=r"de\.xml and en\.xml are not parallel"):
        list(read_segments(raw, "de.xml", "en.xml"))
