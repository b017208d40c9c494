"""The list of protections is that of today's source; `remove_protections.py` itself takes minutes."""

from __future__ import annotations

import re

import pytest

from .remove_protections import PROTECTIONS, ROOT, Protection


@pytest.mark.parametrize("protection", PROTECTIONS, ids=lambda protection: protection.name)
def test_a_protection_is_one_line_of_the_source_and_has_a_test(protection: Protection) -> None:
    assert (ROOT / "src" / "noise2text" / protection.file).read_text().count(protection.line) == 1
    assert protection.line != protection.without
    path, _, function = protection.test.partition("::")
    assert re.search(rf"def \w*{function}", (ROOT / "tests" / path).read_text())
