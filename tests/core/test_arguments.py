"""Mistakes in Python are one sentence that says what was given and what to give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import noise2text
from noise2text.core.arguments import parse_folder, require_texts
from noise2text.core.errors import Problem


def test_any_sequence_of_texts_will_do() -> None:
    for texts in (["a"], ("a",), []):
        require_texts(texts, where="generate")


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
