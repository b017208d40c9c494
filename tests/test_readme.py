"""What the README says is true: it is short, its targets exist, and links of all pages lead somewhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hatch_fancy_pypi_readme.hooks import FancyReadmeMetadataHook

import noise2text
from noise2text.models.registry import list_recipes

ROOT = Path(noise2text.__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_readme_fits_on_few_screens() -> None:
    assert len(README.splitlines()) <= 150


def test_on_a_package_index_no_link_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    hooks = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"]
    hook = FancyReadmeMetadataHook(str(ROOT), hooks["fancy-pypi-readme"])
    metadata: dict[str, Any] = {}
    hook.update(metadata)
    shown = metadata["readme"]["text"]
    links = re.findall(r"\]\(([^)]*)\)|src=\"([^\"]*)\"", shown)
    assert all(link.startswith(("https://", "#")) for pair in links for link in pair if link)
    assert "<!--" not in shown
    assert "Ray clusters" in shown  # the words of a link stay


def test_the_page_of_systems_lists_every_system() -> None:
    page = (ROOT / "docs" / "systems" / "index.md").read_text()
    for name in list_recipes():
        assert f"`{name}`" in page


def test_the_citations_have_the_version_of_the_package() -> None:
    version = noise2text.__version__.partition(".dev")[0]
    assert f"Version {version}" in README
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make (\w+)", README, re.MULTILINE)
    assert len(targets) == 2
    for target in targets:
        assert f"\n{target}:" in makefile


GENERATED = {"reference/commands.md", "reference/settings.md", "reference/python.md"}
"""The pages that mkdocs_hooks.py makes when the site is built."""


def test_links_of_the_docs_lead_somewhere() -> None:
    generated = {(ROOT / "docs" / page).resolve() for page in GENERATED}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            target = (page.parent / link).resolve()
            assert target.exists() or target in generated, f"{page.name}: {link}"


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
