"""A room imports only rooms before it, and the core only what a bare machine with torch has."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import noise2text

ROOT = Path(noise2text.__file__).parent
ORDER = [
    "problem",
    "settings",
    "hardware",
    "text",
    "datasets",
    "diffusion",
    "networks",
    "decoding",
    "training",
    "evaluation",
    "baselines",
    "system",
    "recipes",
    "analysis",
    "runs",
    "studies",
    "report",
    "cli",
    "__main__",
]
MODULES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")
CORE = {"torch", "numpy", "tokenizers", "safetensors", "typing_extensions", "triton"}


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path, *, top_level_only: bool) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_rooms_before_its_own(path: Path) -> None:
    here = room_of(path)
    assert here in ORDER, f"{here} is not on the map: add it to docs/overview.md and here"
    for name in imported(path, top_level_only=False):
        if name.startswith("noise2text."):
            assert ORDER.index(name.split(".")[1]) <= ORDER.index(here), f"{path} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_training_and_generation_need_only_the_core(path: Path) -> None:
    """rich, typer, sacrebleu, babel and yaml are imported where they are used."""
    import sys

    if room_of(path) in ("cli", "runs"):
        return
    outside = {name.split(".")[0] for name in imported(path, top_level_only=True)}
    assert outside - set(sys.stdlib_module_names) - {"noise2text"} <= CORE


def test_the_overview_names_every_room_and_module() -> None:
    text = (ROOT.parents[1] / "docs" / "overview.md").read_text()
    for path in MODULES:
        if path.stem not in ("__init__", "__main__", "difformer"):
            assert f"`{path.stem}`" in text, path.stem
