"""`noise2text page`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from .conftest import Outcome

Run = Callable[..., Outcome]
FAST = ("--set", "steps=4", "--device", "cpu")


def test_a_picture_is_drawn_of_the_first_text(run: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "picture.svg"
    done = run("page", model, "--text", "7 april 1957", "--output", out, *FAST)
    assert done.code == 0, done.err
    assert done.out == f"{out} shows 1 text by 1 model.\n"
    assert "7 april 1957" in out.read_text(encoding="utf-8")


def test_mistakes_are_one_sentence(run: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "picture.svg"
    done = run("page", model, "--output", out, *FAST)
    assert done.err == "noise2text: Give --input FILE or --text TEXT, one of the two.\n"
    texts = tmp_path / "texts.txt"
    texts.write_text("7 april\n")
    for given in ((), ("--text", "a"), ("--input", texts)):
        done = run("page", model, texts, *given, "--output", out, *FAST)
        sentence = f"{texts} is a file and no model: give texts as --input {texts}, after the model."
        assert (done.code, done.err) == (1, f"noise2text: {sentence}\n")
    done = run("page", model, "--text", " ", "--output", out, *FAST)
    assert done.err.startswith("noise2text: There is no text to show")
    done = run("page", model, "--text", "a", "--output", tmp_path / "page.pdf", *FAST)
    assert "must end in" in done.err
    done = run("page", model, model, "--text", "a", "--output", out, *FAST)
    assert "twice" in done.err
    done = run("page", model, "--text", "a", "--output", out, "--set", "stepps=3", "--device", "cpu")
    assert "steps" in done.err
    assert not list(tmp_path.glob("*.svg"))


def test_a_page_has_the_results_of_all_texts_and_models_in_it(
    run: Run, model: Path, teacher: Path, tmp_path: Path
) -> None:
    given, out = tmp_path / "given.txt", tmp_path / "page.html"
    given.write_text("7 april 1957\n\n12. mai </script> 2001\n", encoding="utf-8")
    done = run("page", model, teacher, "--input", given, "--output", out, *FAST)
    assert done.code == 0, done.err
    assert done.out == f"{out} shows 2 texts by 2 models.\n"
    page = out.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert [[each["source"] for each in results] for results in data["inputs"]] == [
        ["7 april 1957"] * 2,
        ["12. mai </script> 2001"] * 2,
    ]
    assert len(data["models"]) == 2
    assert not re.search(r"""(src|href)=(?!"data:)""", page)  # nothing is fetched
