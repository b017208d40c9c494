"""Training and generation import only what a bare machine with torch has, and every list of the rooms is the
one that import-linter checks.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import noise2text

ROOT = Path(noise2text.__file__).parent
REPOSITORY = ROOT.parents[1]
PAGE = {ROOT / "serving" / f"{name}.py" for name in ("result", "page_data", "page_file", "animation")}
FREE = {
    ROOT / "__init__.py",
    *(ROOT / "cli").rglob("*.py"),
    *(ROOT / "commands").rglob("*.py"),
    *(set((ROOT / "serving").rglob("*.py")) - PAGE),
}
"""What imports lazily, what a person calls, and the service, which is an extra: it may import more."""
MODULES = sorted(set(ROOT.rglob("*.py")) - FREE)
ALLOWED = {"noise2text", "torch", "numpy", "tokenizers", "safetensors", "typing_extensions", "triton"}


def rooms_of_import_linter() -> list[str]:
    """The rooms in import order: the layers of pyproject.toml, without the module `__main__`."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers")
    return [room for room in reversed(layers) if room != "__main__"]


def test_the_rooms_are_the_folders_of_the_package() -> None:
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert set(rooms_of_import_linter()) == folders


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_a_table_of_rooms_has_the_rooms_of_import_linter_in_its_order(page: str) -> None:
    table = (REPOSITORY / page).read_text().partition("| room |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)/?` \|", table, re.MULTILINE) == rooms_of_import_linter()


def imported_packages(path: Path) -> set[str]:
    """The packages that a module imports as it is imported itself, not inside its functions."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_training_and_generation_need_only_torch_numpy_tokenizers_and_safetensors(path: Path) -> None:
    """rich, typer, sacrebleu, babel and yaml are imported inside the functions that use them."""
    assert imported_packages(path) - set(sys.stdlib_module_names) <= ALLOWED


@pytest.mark.parametrize(("given", "wanted"), [({}, "1000"), ({"GOMP_SPINCOUNT": "5"}, "5")])
def test_threads_wait_without_spinning_unless_the_user_says_so(given: dict[str, str], wanted: str) -> None:
    """OpenMP reads the variable when torch is imported, so it has to be set before."""
    program = "import os, sys, noise2text; print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"} | given
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.split() == [wanted, "False"]
