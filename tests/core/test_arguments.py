"""Mistakes in Python are one sentence that says what was given and what to give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noise2text
from noise2text.core.arguments import parse_folder, require_new_folder_name, require_texts
from noise2text.core.errors import Problem


def test_any_sequence_of_texts_will_do() -> None:
    for texts in (["a"], ("a",), []):
        require_texts(texts, where="generate")


@pytest.mark.parametrize("wrong", [np.array("a"), str, {"a": 1}, {"a"}, b"a", iter(["a"])])
def test_other_values_are_named(wrong: Any) -> None:
    with pytest.raises(Problem, match="generate takes a list of texts, not "):
        require_texts(wrong, where="generate")


@pytest.mark.parametrize("name", ["a" * 300, "a\0b"])
def test_a_name_that_no_folder_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"cannot be a folder \(.*\): choose another name"):
        require_new_folder_name(tmp_path / name)


def test_a_folder_is_text_or_a_path() -> None:
    assert (
        parse_folder("runs/a", where="load") == parse_folder(Path("runs/a"), where="load") == Path("runs/a")
    )
    for wrong in (None, 3, ["runs/a"]):
        with pytest.raises(Problem, match="load takes the path of a folder, not "):
            parse_folder(wrong, where="load")


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"recipe": None}, "There is no recipe None; there are "),
        ({"out": None}, "train takes the path of a folder, not None"),
        ({"preset": 3}, "difformer has no preset 3; there are "),
        ({"changes": ["lr=1"]}, "as changes, takes settings by name"),
        ({"train": None}, "Pairs are a file, a list of rows"),
    ],
)
def test_train_names_a_mistake_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], refusal: str
) -> None:
    monkeypatch.chdir(tmp_path)
    good: dict[str, Any] = {"recipe": "difformer", "train": [("a", "b"), ("b", "c")], "out": "run"}
    with pytest.raises(Problem, match=refusal):
        noise2text.train(**good | {"preset": "tiny", "device": "cpu"} | changed)
    assert not list(tmp_path.iterdir())
