"""The public API, which noise2text/__init__.py lists: documented, with examples that run, loaded lazily."""

from __future__ import annotations

import doctest
import subprocess
import sys
from typing import Any

import pytest

import noise2text
from noise2text.models import registry

DOCUMENTED = [name for name in noise2text.__all__ if name != "__version__"]


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes that a test registers are unknown to the tests after it."""
    monkeypatch.setattr(registry, "_REGISTERED", registry.list_recipes())


def find_examples(obj: Any, name: str) -> list[doctest.DocTest]:
    """The doctests of an object and its methods, which have to import what they use."""
    return [test for test in doctest.DocTestFinder().find(obj, name, globs={}) if test.examples]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_public_name_has_a_docstring_with_an_example(name: str) -> None:
    own = getattr(noise2text, name).__doc__
    assert own
    assert ">>> " in own


@pytest.mark.parametrize("name", DOCUMENTED)
@pytest.mark.usefixtures("own_registry")
def test_the_examples_of_every_public_name_run(name: str) -> None:
    for example in find_examples(getattr(noise2text, name), name):
        result = doctest.DocTestRunner().run(example)
        assert not result.failed


def test_the_example_of_the_package_runs() -> None:
    (example,) = find_examples(noise2text, "noise2text")
    assert not doctest.DocTestRunner().run(example).failed


@pytest.mark.parametrize("name", DOCUMENTED)
def test_functions_document_every_argument(name: str) -> None:
    public = getattr(noise2text, name)
    code = getattr(public, "__code__", None)
    if code is not None:
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        assert all(argument in public.__doc__ for argument in arguments)


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
