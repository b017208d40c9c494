"""Models on the hub: what is uploaded is loaded, the cache needs no network, mistakes are explained."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import hf_api

from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem
from noise2text.models.folder import load, save
from noise2text.models.hub import HUB_FILES, is_hub_name, save_model
from noise2text.models.registry import find_recipe

from ..conftest import SMALL, Make
from .hub_server import serve_hub


@pytest.fixture
def saved(small: Make, tmp_path: Path) -> Path:
    """The folder of a small untrained model."""
    config = apply_overrides(
        find_recipe("difformer").preset("tiny"), SMALL | {"noise_factor": 2.0}, origin="small"
    )
    save(tmp_path / "saved", small(), recipe="difformer", config=config)
    return tmp_path / "saved"


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_what_was_saved_is_loaded_again(saved: Path, tmp_path: Path, precision: str) -> None:
    model = load(saved, device="cpu", precision=precision)
    model.save_pretrained(tmp_path / "copy", card={"license": "mit"})
    copy = type(model).from_pretrained(tmp_path / "copy", device="cpu", precision=precision)
    assert copy(["7 april", "12. mai"]) == model(["7 april", "12. mai"])
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == sorted(HUB_FILES)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (saved, tmp_path / "copy")]
    assert weights[0] == weights[1]


def test_a_changed_generation_config_is_saved_with_it(saved: Path, tmp_path: Path) -> None:
    model = load(saved, device="cpu", precision="int8")
    model.generation_config = model.generation_config.replace(length_beam=3)
    model.save_pretrained(tmp_path / "copy")
    assert load(tmp_path / "copy", device="cpu").generation_config.length_beam == 3


def test_a_model_is_not_saved_over_itself_or_without_its_recipe(
    saved: Path, small: Make, tmp_path: Path
) -> None:
    with pytest.raises(Problem, match="save it to another folder"):
        load(saved, device="cpu").save_pretrained(saved)
    with pytest.raises(Problem, match="its recipe is unknown"):
        save_model(small(), tmp_path / "new")


def test_a_folder_of_a_model_is_a_path_where_no_file_is(saved: Path, tmp_path: Path) -> None:
    model = load(saved, device="cpu")
    assert model.origin is not None
    file = tmp_path / "file"
    file.write_text("of somebody")
    for name in (file, file / "below", file / "far" / "below"):
        with pytest.raises(Problem, match=f"{file} is a file, so {name} cannot be a folder: choose another"):
            model.save_pretrained(str(name))
        with pytest.raises(Problem, match=f"{file} is a file, so {name} cannot be a folder"):
            save(name, model, recipe="difformer", config=model.origin.config)
    assert file.read_text() == "of somebody"
    wrong: Any
    for wrong, shown in ((None, "None"), (3, "3"), (model, "a value of type LengthPredictingModel")):
        with pytest.raises(Problem, match=f"save_pretrained takes the path of a folder, not {shown}"):
            model.save_pretrained(wrong)
        with pytest.raises(Problem, match=f"load takes the path of a folder, not {shown}"):
            load(wrong)
    save(str(tmp_path / "text"), model, recipe="difformer", config=model.origin.config)
    assert load(tmp_path / "text", device="cpu")("7 april") == model("7 april")


@pytest.mark.parametrize(
    ("name", "is_name"),
    [("org/name", True), ("org/name-1.0_b", True), ("name", False), ("a/b/c", False), ("../name", False)],
)
def test_a_name_on_the_hub_has_two_parts(name: str, is_name: bool) -> None:
    assert is_hub_name(name) == is_name


def test_a_folder_that_is_here_is_never_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert not is_hub_name("runs/typo")
    with pytest.raises(Problem, match="There is no model folder runs/typo;"):
        load("runs/typo")


def test_without_a_network_and_a_cache_the_problem_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Problem, match=r"no model folder nobody/nothing here, and the Hugging Face hub does"):
        load("nobody/nothing")


def test_an_upload_without_a_network_says_so(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf_api.api, "endpoint", "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(Problem, match=r"hub did not take org/name .*: check the name, the network"):
        load(saved, device="cpu").push_to_hub("org/name")


def test_without_huggingface_hub_the_problem_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(Problem, match=r"pip install 'noise2text\[hub\]'"):
        load("org/name")


UPLOAD = """
import sys, noise2text
model = noise2text.load(sys.argv[1], device="cpu", precision="float32")
print(model.push_to_hub("org/dates", card={"license": "mit", "language": ["en"]}))
print(model("7 april 1957"))
"""
DOWNLOAD = """
import sys, noise2text
for revision in (None, *sys.argv[1:]):
    try:
        model = noise2text.load("org/dates", device="cpu", precision="float32", revision=revision)
        print(model("7 april 1957"))
    except noise2text.Problem as problem:
        print(problem)
"""


def run(program: str, *arguments: object, address: str, home: Path) -> list[str]:
    """The lines that a program prints in a process of its own, since the hub's address is read at import."""
    environment = os.environ | {
        "HF_ENDPOINT": address,
        "HF_HOME": str(home),
        "HF_TOKEN": "hf_test",
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "PYTHONIOENCODING": "utf-8",
        "NO_PROXY": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env=environment,
        cwd=home,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.long
def test_a_model_goes_to_the_hub_and_comes_back(saved: Path, tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("uploader", "downloader")]
    for home in homes:
        home.mkdir()
    with serve_hub() as server:
        address, text = run(UPLOAD, saved, address=server.address, home=homes[0])
        assert address == f"{server.address}/org/dates"
        assert sorted(server.commits["org/dates"][-1]) == sorted(HUB_FILES)
        assert b"license: mit" in server.commits["org/dates"][-1]["README.md"]
        for name in ("evil.py", "../../../config.json", "/config.json", "a/config.json", "config.json\n"):
            server.commits["org/dates"][-1][name] = b"raise SystemExit('this ran')"
        loaded, complaint = run(DOWNLOAD, "nosuchbranch", address=server.address, home=homes[1])
        assert loaded == text
        assert sorted(server.fetched) == sorted(HUB_FILES)  # and nothing else
        assert "does not give org/dates" in complaint
    # The server is gone: the cache is used.
    assert run(DOWNLOAD, address=server.address, home=homes[1]) == [text]
