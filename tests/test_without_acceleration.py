"""Without acceleration/ the package works: it makes things fast, and what needs it says so in a sentence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import noise2text
from noise2text.commands.export import export
from noise2text.data.tokenizer import Tokenizer

from .conftest import save_noisy_model

TRAIN = """
import sys
from pathlib import Path

import noise2text
from noise2text.data.dates import write_dates

folder = Path(sys.argv[1])
write_dates(folder, pairs=50, seed=0)
small = {"optim.steps": 2, "tokenizer": "characters", "validation_sentences": 2}
for recipe in ("difformer", "diffuseq", "transformer"):
    model = noise2text.train(
        recipe,
        train=str(folder / "train.jsonl"),
        valid=str(folder / "valid.jsonl"),
        out=folder / recipe,
        preset="tiny",
        changes=small | ({"noise_factor": 2.0} if recipe == "difformer" else {}),
        device="cpu",
    )
    assert len(noise2text.load(folder / recipe, device="cpu").generate(["1 may 2001"]).texts) == 1
output = noise2text.generate("de-en", ["Ich habe zwei Brüder."], device="cpu")
assert output.texts == ["I have two brothers."]
"""

IMPORT_ALL = """
import importlib
import pkgutil

import noise2text

for found in pkgutil.walk_packages(noise2text.__path__, "noise2text."):
    assert "acceleration" not in found.name
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""


@pytest.fixture(scope="module")
def source_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package's source tree in which acceleration/ is deleted."""
    tree = tmp_path_factory.mktemp("tree")
    deleted = shutil.ignore_patterns("acceleration", "__pycache__")
    shutil.copytree(Path(noise2text.__file__).parent, tree / "noise2text", ignore=deleted)
    return tree


def run_python(source_tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(source_tree)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)


@pytest.mark.long
def test_the_package_trains_and_generates_without_acceleration(source_tree: Path, tmp_path: Path) -> None:
    done = run_python(source_tree, "-c", TRAIN, str(tmp_path))
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_every_module_can_be_imported_without_acceleration(source_tree: Path) -> None:
    done = run_python(source_tree, "-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_bench_times_a_model_without_acceleration(
    source_tree: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    folder = str(save_noisy_model(tmp_path / "model", tokenizer))
    sizes = ["--batches", "1", "--steps", "1", "--candidates", "1", "--length", "2"]
    done = run_python(source_tree, "-m", "noise2text", "bench", folder, *sizes, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "1 candidate, 1 step" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "what"),
    [
        (["export", "de-en", "--out", "exported"], "An export"),
        (["generate", "de-en", "Hallo.", "--device", "cpu", "--precision", "int8"], "The precision int8"),
    ],
    ids=["export", "int8"],
)
def test_what_needs_acceleration_says_so_in_one_sentence(
    command: list[str], what: str, source_tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_python(source_tree, "-m", "noise2text", *command)
    assert done.returncode != 0
    assert f"{what} needs noise2text.acceleration, which is missing here." in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_an_exported_model_says_that_it_needs_acceleration(
    source_tree: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    exported = tmp_path / "exported"
    export(save_noisy_model(tmp_path / "model", tokenizer), exported)
    done = run_python(source_tree, "-m", "noise2text", "generate", str(exported), "mai")
    assert done.returncode != 0
    assert "An exported model needs noise2text.acceleration, which is missing here." in done.stderr
    assert "Traceback" not in done.stderr
