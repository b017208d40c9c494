"""Recipes outside the package: an installed one works in every command, a broken one harms nobody."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import noise2text

EXAMPLE = Path(__file__).parents[1] / "examples" / "my_recipe"
SOURCE = "sunday, 7 april 1957"
SHORT = {
    "optim.steps": 2,
    "data.tokenizer": "characters",
    "model.model_dim": 32,
    "diffusion.power": 3.0,
    "run.validation_sentences": 2,
}


def run(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A Python program in a process of its own, to which the packages in the folder `path` are installed."""
    folders = [str(path) if path else "", os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, folders))}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def succeed(*arguments: str, path: Path | None = None) -> str:
    """What a command of noise2text prints."""
    ended = run("-m", "noise2text", *arguments, path=path)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which pip installed the example package."""
    folder = tmp_path_factory.mktemp("installed")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    ended = run("-m", "pip", "install", *options, "--target", str(folder), str(EXAMPLE))
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="module")
def trained(installed: Path, dates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that the command line trained by the example's recipe."""
    out = tmp_path_factory.mktemp("runs") / "power"
    files = ["--train", str(dates / "train.jsonl"), "--valid", str(dates / "valid.jsonl")]
    changes = [part for name, value in SHORT.items() for part in ("--set", f"{name}={value}")]
    succeed("train", "power", "--preset", "tiny", *files, "--out", str(out), *changes, path=installed)
    return out


def test_the_example_requires_this_minor_version() -> None:
    """What it imports beside the public names may move in the next one (CONTRIBUTING.md)."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    (requirement,) = map(Requirement, project["dependencies"])
    current = Version(noise2text.__version__)
    assert requirement.specifier.contains(current, prereleases=True)
    assert not requirement.specifier.contains(f"{current.major}.{current.minor + 1}")


@pytest.mark.long
def test_an_installed_recipe_is_listed_and_has_a_config(installed: Path) -> None:
    listed = {row["name"]: row for row in json.loads(succeed("recipes", "--json", path=installed))}
    assert listed["power"]["presets"] == ["iwslt14-de-en", "tiny"]
    assert "difformer" in listed
    config = succeed("config", "power", "--preset", "tiny", "--set", "power=3", path=installed)
    assert "  power: 3.0  # p of the schedule (1 − t)^p; larger is noisier\n" in config


@pytest.mark.long
def test_an_installed_recipe_trains_generates_and_is_inspected(installed: Path, trained: Path) -> None:
    source = trained.parent / "source.txt"
    source.write_text(f"{SOURCE}\n\n")
    generated = succeed("generate", str(trained), "--input", str(source), "--json", path=installed)
    assert len(generated.splitlines()) == 2
    facts = json.loads(succeed("inspect", str(trained), "--json", path=installed))
    assert "power" in json.dumps(facts)
    program = f"""if True:
        import json, noise2text
        model = noise2text.load({str(trained)!r}, device="cpu")
        schedule, (text,) = model.schedule, model.generate([{SOURCE!r}]).texts
        print(json.dumps([type(schedule).__name__, schedule.power, text]))
    """
    loaded = run("-c", program, path=installed)
    text = json.loads(generated.splitlines()[0])["text"]
    assert json.loads(loaded.stdout) == ["PowerSchedule", 3.0, text]


@pytest.mark.long
def test_the_laws_of_recipes_can_be_checked_for_an_installed_one(installed: Path) -> None:
    lines = succeed("check-recipe", "power", path=installed).splitlines()
    assert lines
    assert all(line.startswith("ok ") for line in lines)


@pytest.mark.long
def test_without_its_package_a_model_says_what_to_install(trained: Path) -> None:
    ended = run("-m", "noise2text", "inspect", str(trained))
    assert ended.returncode == 1
    assert ended.stderr == (
        f"noise2text: The model in {trained} needs the recipe 'power', which is unknown here: install the "
        f"package that has it, or call noise2text.register first.\n"
    )


COPYCAT = """
import dataclasses, noise2text.recipes.difformer as original
RECIPE = dataclasses.replace(original.RECIPE, summary="another one")
"""


def write_plugin(folder: Path, module: str, program: str) -> None:
    """An installed package of one module, whose RECIPE is an entry point."""
    information = folder / f"{module}-1.0.dist-info"
    information.mkdir()
    (folder / f"{module}.py").write_text(program)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[noise2text.recipes]\n{module} = {module}:RECIPE\n")


@pytest.mark.long
def test_broken_packages_only_give_warnings(tmp_path: Path) -> None:
    write_plugin(tmp_path, "broken", "raise RuntimeError('out of order')")
    write_plugin(tmp_path, "wrong", "RECIPE = 3")
    write_plugin(tmp_path, "copycat", COPYCAT)
    ended = run("-m", "noise2text", "recipes", path=tmp_path)
    assert ended.returncode == 0
    assert "difformer" in ended.stdout
    assert "another one" not in ended.stdout
    for name, reason in (
        ("broken", "RuntimeError: out of order"),
        ("wrong", "its entry point is of type int, not noise2text.Recipe."),
        ("copycat", "There is already a recipe 'difformer'; give the new one another name."),
    ):
        sentence = f"The recipe {name} of the package {name} cannot be used: {reason}\n"
        assert ended.stderr.count(sentence) == 1


def test_a_broken_entry_point_is_one_warning(tmp_path: Path) -> None:
    write_plugin(tmp_path, "mine", "import no_such_module")
    program = "import noise2text as n; print(*(name in n.list_recipes() for name in ('difformer', 'mine')))"
    ended = run("-W", "always", "-c", program, path=tmp_path)
    assert ended.stdout == "True False\n"
    assert ended.stderr.count("The recipe mine of the package mine cannot be used: ModuleNotFoundError") == 1


MADE_OF_ANOTHER = """
import dataclasses, noise2text
RECIPE = dataclasses.replace(noise2text.list_recipes()["difformer"], name="mine")
"""


@pytest.mark.parametrize("first", ["", "import mine; "], ids=["found", "imported first"])
def test_a_recipe_can_be_made_of_another_one(first: str, tmp_path: Path) -> None:
    write_plugin(tmp_path, "mine", MADE_OF_ANOTHER)
    ended = run(
        "-W",
        "always",
        "-c",
        first + "import noise2text as n; print('mine' in n.list_recipes())",
        path=tmp_path,
    )
    assert (ended.stdout, ended.stderr) == ("True\n", "")


REGISTERS = """
import dataclasses, json, sys, noise2text
difformer = noise2text.list_recipes()["difformer"]
mine = noise2text.register(dataclasses.replace(difformer, name="mine"))
assert noise2text.register(mine) is mine
assert noise2text.list_recipes()["mine"] is mine
out, options = sys.argv[1], json.loads(sys.argv[2])
noise2text.train("mine", out=out, preset="tiny", device="cpu", **options)
print(len(noise2text.load(out, device="cpu").generate(["sunday, 7 april 1957"]).texts))
"""


@pytest.mark.long
def test_a_program_registers_a_recipe_that_trains_and_loads(dates: Path, tmp_path: Path) -> None:
    changes = {name: value for name, value in SHORT.items() if name != "diffusion.power"}
    files = {split: str(dates / f"{split}.jsonl") for split in ("train", "valid")}
    options = files | {"changes": changes | {"noise_factor": 2.0}}
    ended = run("-c", REGISTERS, str(tmp_path), json.dumps(options))
    assert ended.stdout == "1\n", ended.stderr


def test_two_recipes_of_one_name_are_a_problem() -> None:
    difformer = noise2text.list_recipes()["difformer"]
    with pytest.raises(noise2text.Problem, match=r"^There is already a recipe 'difformer'; give the new one"):
        noise2text.register(dataclasses.replace(difformer, paper="Another one"))
    assert noise2text.list_recipes()["difformer"] is difformer
