"""What the README says is true: its commands exist, its Python runs, its systems are all there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import noise2text
from noise2text.commands.train import train
from noise2text.models.registry import list_recipes

from .conftest import SMALL

ROOT = Path(noise2text.__file__).parents[2]
README = (ROOT / "README.md").read_text()


def commands() -> list[list[str]]:
    lines = re.findall(r"^    (?:echo .* \| )?(?:\.venv/bin/)?(noise2text .*)$", README, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("command", commands(), ids=lambda command: " ".join(command[:2]))
def test_every_command_of_the_readme_parses(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Typer accepts its options; only the files that it names are not there."""
    from typer.testing import CliRunner

    from noise2text.cli import app
    from noise2text.core.errors import Problem

    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, command[1:], catch_exceptions=True)
    assert result.exit_code != 2, result.output
    assert result.exit_code == 0 or isinstance(result.exception, Problem), result.exception


def test_the_python_of_the_readme_runs(dates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = (str(dates / "train.jsonl"), str(dates / "valid.jsonl"))
    train(
        "difformer",
        train=files[0],
        valid=files[1],
        out="runs/demo",
        preset="tiny",
        changes=SMALL | {"optim.steps": 2},
        device="cpu",
    )
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(code, {})


def test_the_readme_lists_every_system() -> None:
    for name in list_recipes():
        assert f"`{name}`" in README


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README, re.MULTILINE):
        assert f"\n{target}:" in makefile


def test_links_of_the_docs_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def linked_lines() -> list[tuple[str, str, int]]:
    """The name, the file and the line of every link into the code, such as [`step`](../src/….py#L85)."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    found = re.findall(r"\[`([\w.]+)`\]\(\.\./(src/[\w/]+\.py)#L(\d+)\)", page)
    assert len(found) == page.count("#L") > 20
    return [(name, path, int(line)) for name, path, line in found]


@pytest.mark.parametrize(("name", "path", "line"), linked_lines(), ids=lambda value: str(value))
def test_a_link_into_the_code_leads_to_the_definition_it_names(name: str, path: str, line: int) -> None:
    lines, definition = (ROOT / path).read_text().splitlines(), name.rpartition(".")[2]
    places = [i for i, text in enumerate(lines, 1) if re.match(rf"\s*(def|class) {definition}\b", text)]
    assert line in places, f"docs/architecture.md: {path}#L{line} is not {name}; try {places}"
