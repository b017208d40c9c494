"""The command `export`, and `generate` from what it wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Outcome

Run = Callable[..., Outcome]


@pytest.mark.long
def test_export_and_generate(run: Run, model: Path, tmp_path: Path) -> None:
    sources, out = tmp_path / "sources.txt", tmp_path / "exported"
    sources.write_text("sunday, 7 april 1957\n12. mai 2001\n")
    made = run("export", model, "--out", out, "--check", sources, "--set", "steps=7")
    assert made.code == 0, made.err
    assert "2 of 2 texts are the same as with torch in float32" in made.out
    texts = [
        run("generate", folder, "--input", sources, "--steps", 7, "--precision", "float32")
        for folder in (model, out)
    ]
    assert texts[0].out == texts[1].out
    assert "onnxruntime, float32" in run("inspect", out).out


def test_mistakes_are_one_sentence_and_write_nothing(
    run: Run, model: Path, teacher: Path, tmp_path: Path
) -> None:
    out, texts = tmp_path / "exported", tmp_path / "texts.txt"
    texts.write_text("7 april 1957\n")
    (tmp_path / "empty.txt").touch()
    for arguments, message in (
        ((teacher, "--out", out), "cannot be exported"),
        ((model, "--out", model), "is not empty and not an exported model"),
        ((model, "--out", out, "--precision", "int4"), "float32 or int8"),
        ((model, "--out", out, "--check", tmp_path / "none.txt"), "none.txt"),
        ((model, "--out", out, "--check", tmp_path / "empty.txt"), "has no texts"),
        ((model, "--out", out, "--set", "steps=3"), "add --check FILE"),
        ((model, "--out", out, "--check", texts, "--set", "stepz=3"), "stepz"),
        ((model, "--out", texts / "in"), "cannot be written"),
    ):
        made = run("export", *arguments)
        assert made.code == 1
        assert message in made.err
        assert "Traceback" not in made.err
    assert not out.exists()
