"""Model folders of format 1 become today's; format1.json holds what that format said of every tiny preset."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from noise2text import load
from noise2text.core.errors import Problem
from noise2text.core.weight_storage import WEIGHT_TYPES
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.convert import convert_folder, store_weights
from noise2text.models.folder import load_config, save
from noise2text.models.registry import RENAMED_RECIPES, find_recipe

from ..conftest import shrunk
from ..faults import Fault, run_with_fault

FORMAT1: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "format1.json").read_text("utf-8"))
CHANGED: dict[str, dict[str, Any]] = {
    "ar-diffusion": {"candidate_is": "hypothesis", "self_pair": True},
    "dinoiser": {"select": "mbr", "utility": "bleu", "self_pair": True},
    "seqdiffuseq": {"network": "difformer"},
}
"""Settings of recipes whose defaults have changed since format 1, as they were then."""


NOW_PUBLISHED = ("diffusion-lm", "diffuseq-score", "diffuseq-mean", "word-by-word")
"""Recipes whose preset `tiny` of then is `tiny-published` today."""


def format1_config(name: str) -> Any:
    """What format 1 said of the tiny preset, as today's config."""
    recipe = find_recipe(RENAMED_RECIPES.get(name, name))
    preset = "tiny-published" if name in NOW_PUBLISHED else "tiny"
    config = recipe.preset(preset).replace(CHANGED.get(name, {}))
    # The noise factor was found for the vocabulary.
    return config.replace(noise_factor=2.0) if FORMAT1[name]["settings"].get("factor") == 2.0 else config


def write_format1(folder: Path, name: str, tokenizer: Tokenizer) -> dict[str, torch.Tensor]:
    """A folder of format 1 with random weights of the tiny preset; returns the weights by today's names."""
    old, recipe = FORMAT1[name], find_recipe(RENAMED_RECIPES.get(name, name))
    torch.manual_seed(0)
    config = format1_config(name)
    model = recipe.build(config, tokenizer)
    save(folder, model, recipe=name, config=config)
    own = {each for each, _ in (*model.named_parameters(), *model.named_buffers())}
    weights = {each: tensor.clone() for each, tensor in model.state_dict().items() if each in own}
    assert len(weights) == len(old["weights"])
    save_file(dict(zip(old["weights"], weights.values(), strict=True)), folder / "model.safetensors")
    contents = {"format": 1, "recipe": name, "settings": old["settings"], "vocabulary": len(tokenizer)}
    (folder / "config.json").write_text(json.dumps(contents))
    (folder / "generation_config.json").write_text(json.dumps(old["generation"]))
    return weights


@pytest.mark.parametrize("name", FORMAT1)
def test_a_converted_folder_holds_the_same_model(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    weights = write_format1(tmp_path / "old", name, tokenizer)
    convert_folder(tmp_path / "old", tmp_path / "new")
    _, config = load_config(tmp_path / "new")
    assert asdict(config) == asdict(format1_config(name))
    model = load(tmp_path / "new", device="cpu", precision="float32")
    state = model.state_dict()
    assert all(torch.equal(state[each], tensor) for each, tensor in weights.items())


def test_loading_an_older_folder_says_how_to_convert_it(tokenizer: Tokenizer, tmp_path: Path) -> None:
    write_format1(tmp_path / "old", "difformer", tokenizer)
    with pytest.raises(Problem, match="noise2text convert"):
        load(tmp_path / "old")


def test_only_an_older_folder_is_converted_and_nothing_is_overwritten(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    write_format1(tmp_path / "old", "difformer", tokenizer)
    with pytest.raises(Problem, match="exists already"):
        convert_folder(tmp_path / "old", tmp_path)
    convert_folder(tmp_path / "old", tmp_path / "new")
    with pytest.raises(Problem, match="today's format"):
        convert_folder(tmp_path / "new", tmp_path / "newer")
    with pytest.raises(Problem, match="is missing: name the folder of a model"):
        convert_folder(tmp_path / "nothing", tmp_path / "newer")


def test_a_killed_conversion_leaves_nothing_under_the_new_name(tokenizer: Tokenizer, tmp_path: Path) -> None:
    old, folder = tmp_path / "old", tmp_path / "folder"
    write_format1(old, "difformer", tokenizer)
    folder.mkdir()
    for number in (2, 4, 6):
        killed = run_with_fault(convert_folder, old, folder / "new", out=folder, fault=Fault(kill_at=number))
        assert killed == -signal.SIGKILL
        assert not (folder / "new").exists()
    assert run_with_fault(convert_folder, old, folder / "new", out=folder) == 0
    assert [path.name for path in folder.iterdir()] == ["new"]
    load(folder / "new", device="cpu")


def test_changed_flags_become_parts(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """skip is a parameterization now, order a schedule, and losses are weights."""
    write_format1(tmp_path / "old", "diffuseq-epsilon", tokenizer)
    path = tmp_path / "old" / "config.json"
    contents = json.loads(path.read_text())
    contents["settings"] |= {"skip": True, "order": "staggered"}
    path.write_text(json.dumps(contents))
    convert_folder(tmp_path / "old", tmp_path / "new")
    _, config = load_config(tmp_path / "new")
    assert (config.diffusion.parameterization, config.diffusion.schedule) == (
        "residual-epsilon",
        "position-sigmoid",
    )


def test_a_renamed_recipe_is_named_anew(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """A folder of today's format with the old name of its recipe is converted, and nothing else changes."""
    recipe = find_recipe("diffuseq-position-sigmoid")
    config = recipe.preset("tiny")
    save(tmp_path / "today", recipe.build(config, tokenizer), recipe=recipe.name, config=config)
    shutil.copytree(tmp_path / "today", tmp_path / "old")
    path = tmp_path / "old" / "config.json"
    path.write_text(path.read_text().replace(recipe.name, "diffuseq-staggered"))
    with pytest.raises(Problem, match="noise2text convert"):
        load(tmp_path / "old")
    convert_folder(tmp_path / "old", tmp_path / "new")
    assert load_config(tmp_path / "new") == (recipe, config)
    os.mkfifo(tmp_path / "old" / "pipe")  # on which a copy would wait
    convert_folder(tmp_path / "old", tmp_path / "newer")
    assert not (tmp_path / "newer" / "pipe").exists()
    for written in (tmp_path / "today").iterdir():
        assert (tmp_path / "new" / written.name).read_bytes() == written.read_bytes()


@pytest.mark.parametrize("dtype", WEIGHT_TYPES)
def test_a_model_with_its_weights_in_another_type_is_the_same_but_for_rounding(
    dtype: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    recipe = find_recipe("difformer")
    config = shrunk(recipe.preset("tiny"), model_dim=64, ffn_dim=128)
    model = recipe.build(config, tokenizer)
    save(tmp_path / "old", model, recipe="difformer", config=config)
    (tmp_path / "old" / "README.md").write_text("its card")
    store_weights(tmp_path / "old", tmp_path / "new", dtype)
    stored = load(tmp_path / "new", device="cpu", precision="float32").state_dict()
    for name, tensor in model.state_dict().items():
        error = 0.5 / 127 if dtype == "int8" else 2**-8 if dtype == "bfloat16" else 0.0
        assert torch.allclose(stored[name], tensor, rtol=0.0, atol=1.01 * error * float(tensor.abs().max()))
    size = {name: (tmp_path / name / "model.safetensors").stat().st_size for name in ("old", "new")}
    assert size["new"] <= {"float32": 1.01, "bfloat16": 0.7, "int8": 0.5}[dtype] * size["old"]
    assert (tmp_path / "new" / "README.md").read_text() == "its card"


def test_a_changed_folder_does_not_get_new_checksums(tokenizer: Tokenizer, tmp_path: Path) -> None:
    recipe = find_recipe("difformer")
    config = shrunk(recipe.preset("tiny"))
    save(tmp_path / "old", recipe.build(config, tokenizer), recipe="difformer", config=config)
    file = tmp_path / "old" / "config.json"
    file.write_text(file.read_text().replace('"noise_factor": 2.0', '"noise_factor": 3.0'))
    with pytest.raises(Problem, match=r"config.json is not the file that was saved"):
        store_weights(tmp_path / "old", tmp_path / "new", "int8")
    assert not (tmp_path / "new").exists()


def test_the_weights_of_an_exported_model_are_not_stored(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"format": 2, "recipe": "difformer", "engine": {}}')
    with pytest.raises(Problem, match="exported model"):
        store_weights(tmp_path, tmp_path / "new", "int8")


def test_the_weights_of_an_older_folder_are_not_stored_in_another_type(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    write_format1(tmp_path / "old", "difformer", tokenizer)
    with pytest.raises(Problem, match="convert it first"):
        store_weights(tmp_path / "old", tmp_path / "new", "int8")
    assert not (tmp_path / "new").exists()
