"""The public API, which noise2text/__init__.py lists: documented, with examples that run, loaded lazily."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from inspect import isfunction, signature

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


@pytest.mark.parametrize(
    "function",
    [function for name in DOCUMENTED if isfunction(function := getattr(noise2text, name))],
    ids=lambda function: function.__name__,
)
def test_functions_document_every_argument(function: Callable[..., object]) -> None:
    assert function.__doc__
    assert all(argument in function.__doc__ for argument in signature(function).parameters)


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
