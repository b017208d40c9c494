"""docs/reference/fidelity.md names tests: every one that it names exists, and every decision names one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import noise2text

ROOT = Path(noise2text.__file__).parents[2]
LINES = (ROOT / "docs" / "reference" / "fidelity.md").read_text().splitlines()
NAMED_TEST = re.compile(r"`((?:\w+/)?test_\w+\.py)`(?:: ([^|`;.)]+))?")
"""A test file, perhaps with its folder, and what the names of its tests say, with commas between them."""


def functions(file: str) -> list[set[str]]:
    """The words of every test's name in a file."""
    paths = [path for path in (ROOT / "tests").rglob("*.py") if path.as_posix().endswith("/" + file)]
    assert paths, f"there is no {file}"
    trees = [ast.walk(ast.parse(path.read_text())) for path in paths]
    names = [node.name for tree in trees for node in tree if isinstance(node, ast.FunctionDef)]
    return [set(name.split("_")) for name in names if name.startswith("test_")]


def references() -> list[tuple[str, str]]:
    found = [match for line in LINES for match in NAMED_TEST.findall(line)]
    return [(file, phrase.strip()) for file, phrases in found for phrase in phrases.split(",")]


def rows() -> list[str]:
    """The last cells of the tables whose last column is `test`."""
    cells, bound = [], False
    for line in LINES:
        if not line.startswith("|"):
            bound = False
        elif line.rstrip(" |").endswith("| test"):
            bound = True
        elif bound and not line.startswith("|---"):
            cells.append(line.rstrip(" |").rsplit("|", 1)[1])
    return cells


@pytest.mark.parametrize(("file", "phrase"), sorted(set(references())))
def test_every_test_that_the_page_names_exists(file: str, phrase: str) -> None:
    words = set(re.findall(r"[a-z0-9]+", phrase.lower()))
    assert any(words <= name for name in functions(file)), f"no test in {file} says {phrase!r}"


def test_every_decision_names_a_test() -> None:
    assert len(rows()) > 50
    for cell in rows():
        assert NAMED_TEST.search(cell), cell


def test_every_named_file_says_which_of_its_tests() -> None:
    assert [file for file, phrase in references() if not re.search("[a-z]", phrase.lower())] == []
