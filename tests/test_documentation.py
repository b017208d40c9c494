"""The documentation is true: every command on it parses, and every block that is not marked as long runs.

`<!-- long -->` above a block means that it takes long or needs files of the reader's own;
`<!-- not run: why -->` marks code that is shortened.
The lab notebook is a record: its blocks were run when they were written.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

import noise2text
from noise2text.cli import app

from .documentation_pages import FENCE, LIVING_PAGES, PAGES, ROOT, RUN, blocks, logical_lines

SHOWN = ("text", "json", "yaml", "toml", "bibtex")
SENTENCES = [("Wo ist mein Hut?", "Where is my hat?"), ("Ich habe zwei Brüder.", "I have two brothers.")]
TINY: dict[str, Any] = {
    "vocabulary": 280,
    "model_dim": 32,
    "ffn_dim": 32,
    "heads": 2,
    "optim.steps": 2,
    "max_tokens": 64,
    "validation_sentences": 2,
}


def commands(page: Path) -> list[str]:
    """Every whole `noise2text` command on a page, without what stands before it."""
    found = re.findall(r"(?:^|\| |-m )(noise2text .*)$", "\n".join(logical_lines(page.read_text())), re.M)
    return [
        line
        for line in found
        if re.fullmatch(r"\w[\w-]*", line.split()[1]) and not re.search(r"[…\[`|$]", line)
    ]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name)
def test_every_command_parses(page: Path) -> None:
    root: Any = typer.main.get_command(app)
    parent = root.make_context("noise2text", [], resilient_parsing=True)
    for line in commands(page):
        command, *arguments = shlex.split(line, comments=True)[1:]
        built = root.get_command(parent, command)
        context = built.make_context(command, arguments, parent=parent)  # raises if typer refuses it
        assert context.command is built, line


@pytest.mark.parametrize("page", LIVING_PAGES, ids=name)
def test_every_block_says_what_it_is(page: Path) -> None:
    text = page.read_text()
    assert {block.language for block in blocks(page)} <= {*RUN, *SHOWN}
    assert len(re.findall(r"^\s*```", text, re.M)) == 2 * len(blocks(page)), "an indented or nameless block"
    for block in blocks(page):
        if block.language == "python" and not block.is_shortened:
            compile(block.code, name(page), "exec")  # those that take long are not run
    outside = FENCE.sub("", text)
    assert not re.search(r"^    (noise2text|python3?|pip|make|torchrun) ", outside, re.M), (
        "an indented command"
    )


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages speak of, and two models of a few steps."""
    folder = tmp_path_factory.mktemp("documentation")
    lines = [json.dumps({"src": source, "trg": target}) + "\n" for source, target in SENTENCES]
    for file, copies in {"pairs": 300, "train": 8, "valid": 1, "test": 1}.items():
        (folder / f"{file}.jsonl").write_text("".join(lines * copies))
    (folder / "source.txt").write_text("".join(source + "\n" for source, _ in SENTENCES))
    (folder / "reference.txt").write_text("".join(target + "\n" for _, target in SENTENCES))
    for run, recipe in {"mine": "difformer", "teacher": "transformer"}.items():
        noise2text.train(
            recipe,
            train=str(folder / "train.jsonl"),
            valid=str(folder / "valid.jsonl"),
            out=folder / "runs" / run,
            preset="tiny",
            changes=TINY,
            device="cpu",
        )
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    "page", [page for page in LIVING_PAGES if any(block.is_run for block in blocks(page))], ids=name
)
def test_blocks_run(page: Path, workspace: Path, tmp_path: Path) -> None:
    """From top to bottom, in one folder and a process of their own, since a page may register a recipe."""
    here = tmp_path / "here"
    shutil.copytree(workspace, here)
    program = [sys.executable, str(Path(__file__).with_name("documentation_pages.py")), str(page)]
    done = subprocess.run(program, cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]


def test_the_pictures_of_the_results_show_every_row(tmp_path: Path) -> None:
    """They are drawn from the data files beside the pages, and those in the repository are not older."""
    script, data = ROOT / "benchmarks" / "plot_results.py", ROOT / "docs" / "results"
    subprocess.run([sys.executable, str(script), str(data), str(tmp_path)], check=True)
    for table in data.glob("*.csv"):
        rows = list(csv.DictReader(table.read_text().splitlines()))
        for picture in (tmp_path / f"{table.stem}.svg", ROOT / "docs" / "images" / f"{table.stem}.svg"):
            assert all(row["settings"] in picture.read_text() for row in rows)
