"""`noise2text report`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .conftest import Outcome

Run = Callable[..., Outcome]


def test_it_writes_the_page_and_says_where(run: Run, model: Path, teacher: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "report.html"
    without = "candidates,positions,embeddings,degeneration,from-noise,lengths"
    done = run(
        "report", model, teacher, "--output", out, "--sentences", 3, "--without", without, "--device", "cpu"
    )
    assert done.code == 0, done.err
    assert done.out.startswith(f"{out}: ")
    page = out.read_text(encoding="utf-8")
    assert "Report on run, teacher" in page
    assert 'id="sampling"' in page
    assert 'id="candidates"' not in page


def test_a_mistake_is_one_sentence(run: Run, model: Path, tmp_path: Path) -> None:
    done = run("report", model, "--output", tmp_path / "report.html", "--without", "samples")
    assert done.code == 1
    assert done.err == "noise2text: A report has no section 'samples'; did you mean sampling?\n"
    done = run("report", tmp_path, "--output", tmp_path / "report.html", "--test", "nowhere.jsonl")
    assert done.err == "noise2text: There is no file 'nowhere.jsonl'; check the name and the folder.\n"
    assert not (tmp_path / "report.html").exists()
