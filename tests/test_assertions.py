"""Every test asserts something in every case: it has an assertion that is under no lone `if`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
EXPECTATIONS = ("raises", "warns", "fail", "expect")
"""Besides `assert`: what pytest and playwright call an assertion."""


def name_called(node: ast.AST) -> str:
    """The last name of what a node calls, such as `raises` of `pytest.raises(…)`; empty for another node."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def asserts(node: ast.AST, helpers: frozenset[str] = frozenset()) -> bool:
    name = name_called(node)
    return isinstance(node, ast.Assert) or name.startswith("assert_") or name in {*EXPECTATIONS, *helpers}


HELPERS = frozenset(
    function.name
    for tree in TREES.values()
    for function in ast.walk(tree)
    if isinstance(function, ast.FunctionDef) and not function.name.startswith("test_")
    if any(map(asserts, ast.walk(function)))
)
"""The functions of the tests that assert something."""


def always_asserts(node: ast.AST) -> bool:
    """Whether there is an assertion in a node that a lone `if` cannot leave out."""
    if asserts(node, HELPERS):
        return True
    if isinstance(node, ast.If):
        branches = (node.body, node.orelse)
        return always_asserts(node.test) or all(any(map(always_asserts, branch)) for branch in branches)
    return any(map(always_asserts, ast.iter_child_nodes(node)))


def list_tests() -> Iterator[tuple[str, ast.FunctionDef]]:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not is_fixture(node):
                yield f"{path.name}::{node.name}", node


def is_fixture(function: ast.FunctionDef) -> bool:
    return any("fixture" in ast.unparse(decorator) for decorator in function.decorator_list)


def test_every_test_asserts_something_in_every_case() -> None:
    tests = dict(list_tests())
    assert len(tests) > 2_000
    assert [name for name, function in tests.items() if not always_asserts(function)] == []


@pytest.mark.parametrize(
    ("body", "always"),
    [
        ("assert x", True),
        ("for x in y:\n  assert x", True),
        ("with pytest.raises(ValueError):\n  f()", True),
        ("if x:\n  assert y\nelse:\n  assert z", True),
        ("f(x)", False),
        ("if x:\n  assert y", False),
        ("if x:\n  assert y\nelif z:\n  assert y", False),
        ("with suppress(Problem):\n  f()", False),
    ],
)
def test_an_assertion_under_a_lone_if_is_none(body: str, always: bool) -> None:
    assert always_asserts(ast.parse(body)) == always
