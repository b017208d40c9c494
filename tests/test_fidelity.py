"""docs/reference/fidelity.md names tests: every one that it names exists, and every decision names one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import noise2text
from noise2text.commands.check_recipe import LAWS

ROOT = Path(noise2text.__file__).parents[2]
LINES = (ROOT / "docs" / "reference" / "fidelity.md").read_text().splitlines()
NAMED_TEST = re.compile(r"`((?:\w+/)?test_\w+\.py|check-recipe)`(?:: ([^|`;.)]+))?")
"""A test file, perhaps with its folder, and what the names of its tests say, with commas between them; or the
command `check-recipe`, and what the names of its laws say."""


def functions(file: str) -> list[set[str]]:
    """The words of every test's name in a file, or of every law's name."""
    if file == "check-recipe":
        return [set(law.__name__.split("_")) for law in LAWS]
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


READ = re.compile(r"[\w/*-]+\.(?:py|sh|md|yaml):\d+")
"""A file of released code and a line in it."""
RELEASED = ("released code", "paper or released code")
"""The columns that say what released code does."""


def released_cells() -> list[str]:
    """The cells that say something about released code."""
    cells, column = [], None
    for line in LINES:
        parts = [part.strip() for part in line.strip().strip("|").split(" | ")]
        if not line.startswith("|"):
            column = None
        elif line.startswith("| point"):
            column = next((parts.index(name) for name in RELEASED if name in parts), None)
        elif column is not None and not line.startswith("|---") and not parts[column].startswith("–"):
            cells.append(parts[column])
    return cells


@pytest.mark.parametrize(("file", "phrase"), sorted(set(references())))
def test_every_test_that_the_page_names_exists(file: str, phrase: str) -> None:
    words = set(re.findall(r"[a-z0-9]+", phrase.lower()))
    assert any(words <= name for name in functions(file)), f"no test in {file} says {phrase!r}"


def test_every_decision_names_a_test() -> None:
    assert len(rows()) > 50
    for cell in rows():
        assert NAMED_TEST.search(cell), cell


def test_every_claim_about_released_code_says_where_it_was_read() -> None:
    """A file and a line, or that it was not read again."""
    cells = released_cells()
    assert len(cells) > 100
    for cell in cells:
        assert READ.search(cell) or "not read again" in cell, cell


def test_every_repository_that_was_read_has_its_commit() -> None:
    rows = [line for line in LINES if re.match(r"\| [^|]+ \| `[\w.-]+/[\w.-]+` \| `[0-9a-f]{7}` \|", line)]
    assert len(rows) == 7


def test_every_named_file_says_which_of_its_tests() -> None:
    assert [file for file, phrase in references() if not re.search("[a-z]", phrase.lower())] == []
