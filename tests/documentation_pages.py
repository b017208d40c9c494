"""The fenced blocks of the documentation's pages, and a program that runs those of one page in order.

    python tests/documentation_pages.py PAGE

It runs them in the working directory, which needs the files that the page speaks of.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from typer.testing import CliRunner

import noise2text
from noise2text.cli import app

__all__ = ["FENCE", "LIVING_PAGES", "PAGES", "ROOT", "RUN", "Block", "blocks", "logical_lines", "run_page"]

ROOT = Path(noise2text.__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LIVING_PAGES = [page for page in PAGES if page.parent.name != "notebook"]
FENCE = re.compile(
    r"(?:^<!-- (?P<mark>long|not run)[^>]*-->\n)?^```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^```", re.M | re.S
)
RUN = ("bash", "python")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and whether the tests run it."""

    language: str
    code: str
    is_run: bool
    is_shortened: bool


def blocks(page: Path) -> list[Block]:
    return [
        Block(
            found["language"],
            found["code"],
            is_run=found["mark"] is None and found["language"] in RUN,
            is_shortened=found["mark"] == "not run",
        )
        for found in FENCE.finditer(page.read_text())
    ]


def logical_lines(code: str) -> list[str]:
    """The lines of a shell block, continued ones joined."""
    return [line.strip() for line in code.replace("\\\n", " ").splitlines() if line.strip()]


def run_page(page: Path) -> None:
    """Run all blocks of a page that are to be run, in the working directory."""
    names: dict[str, Any] = {}
    for block in blocks(page):
        if block.is_run and block.language == "python":
            exec(block.code, names)
        elif block.is_run:
            run_shell(block.code)


def run_shell(code: str) -> None:
    """Run every line; `noise2text` in this process, because starting another takes seconds."""
    for line in logical_lines(code):
        if line.startswith("noise2text "):
            result = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
            assert result.exit_code == 0, f"{line}\n{result.output}\n{result.exception}"
        else:
            subprocess.run(["bash", "-ec", line], check=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_page(Path(sys.argv[1]))
