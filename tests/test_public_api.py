"""The public API, which noise2text/__init__.py lists: documented, with examples that run, loaded lazily."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from inspect import cleandoc, isclass, isfunction, signature
from itertools import takewhile
from typing import Any

import pytest

import noise2text

DOCUMENTED = [name for name in noise2text.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_public_name_has_a_docstring_with_an_example(name: str) -> None:
    own = getattr(noise2text, name).__doc__
    assert own
    assert ">>> " in own


RUN_EXAMPLES = """
import doctest, importlib, pkgutil, noise2text, torch
torch.set_num_threads(1)
names = ["noise2text", *(found.name for found in pkgutil.walk_packages(noise2text.__path__, "noise2text."))]
for name in names:
    if name.endswith("__main__"):
        continue
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        print(name, "needs", error.name)
        continue
    own = {key: value for key, value in vars(module).items() if key != "annotations"}  # no __future__
    examples = [test for test in doctest.DocTestFinder().find(module, globs=own) if test.examples]
    if sum(doctest.DocTestRunner().run(example).attempted for example in examples):
        print(name, "has examples")
"""


def test_the_examples_of_all_docstrings_run() -> None:
    """In a process of their own, because they register recipes; doctest prints only those that fail."""
    done = subprocess.run([sys.executable, "-c", RUN_EXAMPLES], capture_output=True, text=True, check=False)
    assert not done.stderr
    found = [line.rsplit(" ", 2) for line in done.stdout.splitlines()]
    assert [line for line in found if line[-2:] not in (["has", "examples"], ["needs", "triton"])] == []
    with_examples = {name for name, verb, _ in found if verb == "has"}
    assert {getattr(noise2text, name).__module__ for name in DOCUMENTED} <= with_examples


FUNCTIONS = [function for name in DOCUMENTED if isfunction(function := getattr(noise2text, name))]
CLASSES = [kind for name in DOCUMENTED if isclass(kind := getattr(noise2text, name))]
VALUES = [
    kind
    for kind in CLASSES
    if (is_dataclass(kind) or issubclass(kind, tuple)) and not issubclass(kind, noise2text.Config)
]
"""Classes with fields; those of a config are settings, which carry their own help."""


def listed(documented: Any, section: str) -> set[str]:
    """The names that a section of a docstring explains: the lines `name: …` or `one, another: …` in it."""
    after = cleandoc(documented.__doc__ or "").partition(f"\n{section}:\n")[2]
    lines = takewhile(lambda line: line.startswith("    "), after.splitlines())
    entries = (re.match(r"    ([*\w]+(?:, [*\w]+)*): \S", line) for line in lines)
    return {name for entry in entries if entry for name in entry[1].split(", ")}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_function_explains_each_argument_and_what_it_returns(function: Callable[..., object]) -> None:
    called = signature(function)
    assert listed(function, "Args") == set(called.parameters)
    returns = called.return_annotation not in (None, "None")
    assert ("\nReturns:\n    " in cleandoc(function.__doc__ or "")) == returns


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_a_value_explains_each_of_its_fields(kind: Any) -> None:
    names = kind._fields if issubclass(kind, tuple) else {field.name for field in fields(kind)}
    assert listed(kind, "Fields") | listed(kind, "Attributes") == set(names)


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in CLASSES
        if "__init__" in vars(kind) and not (is_dataclass(kind) or getattr(kind, "_is_protocol", False))
    ],
    ids=lambda kind: kind.__name__,
)
def test_a_class_explains_each_argument(kind: Any) -> None:
    assert listed(kind, "Args") == set(signature(kind.__init__).parameters) - {"self"}


def test_dir_lists_exactly_the_public_names() -> None:
    assert dir(noise2text) == sorted(noise2text.__all__)
    assert len(set(noise2text.__all__)) == len(noise2text.__all__)


def test_the_names_stay_what_they_are_after_everything_was_imported() -> None:
    """A room of the same name would take the place of a function: noise2text.recipes is the room."""
    noise2text.list_recipes()
    for name in DOCUMENTED:
        assert getattr(noise2text, name).__module__.startswith("noise2text.")
        assert callable(getattr(noise2text, name))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'noise2text' has no attribute 'lode'"):
        _ = noise2text.lode


def test_importing_the_package_does_not_import_torch() -> None:
    program = "import sys, noise2text; dir(noise2text); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
