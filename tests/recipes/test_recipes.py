"""Presets and folders of recipes; test_check_recipe.py runs the laws that all recipes keep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from noise2text import load
from noise2text.core.errors import Problem
from noise2text.data.builders.registry import DATASETS
from noise2text.data.tokenizer import Tokenizer
from noise2text.experiments import EXPERIMENTS
from noise2text.models import Model
from noise2text.models.folder import save
from noise2text.models.registry import find_recipe, list_recipes

from ..conftest import DIFFUSION, shrunk

TEXTS = ["sunday, 7 april 1957", "12. mai 2001"]


@pytest.mark.parametrize("name", list_recipes())
def test_a_recipe_has_a_tiny_preset_and_parameters_if_it_learns_by_steps(
    name: str, tokenizer: Tokenizer
) -> None:
    recipe = find_recipe(name)
    assert {recipe.default_preset, "tiny"} <= recipe.presets.keys()
    for preset in recipe.presets:
        with torch.device("meta"):
            model: Model = recipe.build(recipe.preset(preset), tokenizer)
        assert (recipe.fit is None) == (sum(parameter.numel() for parameter in model.parameters()) > 0)


@pytest.mark.parametrize(
    ("name", "vocabularies"),
    [
        ("difformer", {"iwslt14-de-en": 10_000, "wmt14-en-de": 32_768, "qqp": 32_768}),
        ("seqdiffuseq", {"iwslt14-de-en": 10_000, "wmt14-en-de": 32_768, "qqp": 30_522}),
        ("diffuseq", {"qqp": 30_522, "covost-de-en": 30_000, "iwslt14-de-en": 10_000, "gigaword": 32_768}),
        ("diffusion-lm", {"covost-de-en": 30_000}),
    ],
)
def test_presets_have_the_vocabularies_of_the_papers(name: str, vocabularies: dict[str, int]) -> None:
    for preset, size in vocabularies.items():
        data = find_recipe(name).preset(preset).data
        assert (data.tokenizer, data.vocabulary) == ("bpe", size)


DIFFORMER_TABLE_3 = {"difformer", "transformer", "cmlm", "diffuseq", "seqdiffuseq"}
PUBLISHED_RUNS = {  # the systems of each paper's main table that we have, by dataset
    "qqp": {"diffuseq", "seqdiffuseq", "difformer", "transformer", "gru", "levenshtein"},
    "wiki-auto": {"diffuseq", "seqdiffuseq", "difformer", "transformer", "gru", "levenshtein"},
    "quasar-t": {"diffuseq", "seqdiffuseq", "difformer", "transformer", "gru", "levenshtein"},
    "commonsense-conversation": {"diffuseq", "seqdiffuseq", "transformer", "gru", "levenshtein"},
    "iwslt14-de-en": DIFFORMER_TABLE_3 | {"dinoiser", "ar-diffusion"},
    "iwslt14-en-de": {"seqdiffuseq", "transformer", "cmlm", "ar-diffusion"},
    "wmt14-en-de": DIFFORMER_TABLE_3 | {"levenshtein", "dinoiser", "cdcd"},
    "wmt14-de-en": {"seqdiffuseq", "transformer", "cmlm", "cdcd"},
    "wmt16-en-ro": DIFFORMER_TABLE_3 | {"dinoiser"},
    "gigaword": DIFFORMER_TABLE_3 | {"levenshtein"},
    "covost-de-en": {"diffuseq", "diffuseq-autoregressive", "diffusion-lm", "transformer", "levenshtein"},
}


@pytest.mark.parametrize("dataset", PUBLISHED_RUNS)
def test_a_system_that_a_paper_ran_on_a_dataset_has_its_preset(dataset: str) -> None:
    assert {name for name in PUBLISHED_RUNS[dataset] if dataset not in find_recipe(name).presets} == set()


def test_every_conditional_diffusion_recipe_has_a_preset_for_20000_pairs_of_text() -> None:
    conditional = set(DIFFUSION) - {"diffusion-lm"}  # which is a model of pairs
    assert {name for name in conditional if "small" not in find_recipe(name).presets} == set()
    assert {model.recipe for model in EXPERIMENTS["shuffled-sources"].models()} == conditional


def test_presets_are_named_after_datasets() -> None:
    others = {"xsum", "cnn-dailymail", "plain", "gpt2", "gpt2-large", "t5-base", "tiny", "tiny-published"}
    others |= {"small"}
    for recipe in list_recipes().values():
        for preset in set(recipe.presets) - others:
            assert any(preset == name or preset.startswith(f"{name}-") for name in DATASETS), preset


def test_a_mistyped_recipe_or_preset_is_named() -> None:
    with pytest.raises(Problem, match="did you mean difformer"):
        find_recipe("diformer")
    with pytest.raises(Problem, match="'tinny'; did you mean tiny"):
        find_recipe("difformer").preset("tinny")


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    recipe = find_recipe("difformer")
    config = shrunk(recipe.preset("tiny"))
    save(tmp_path / "model", recipe.build(config, tokenizer), recipe="difformer", config=config)
    return tmp_path / "model"


def test_a_model_folder_is_four_files_and_nothing_that_runs(folder: Path) -> None:
    names = {file.name for file in folder.iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json"}


@pytest.mark.parametrize(
    "file", ["config.json", "model.safetensors", "tokenizer.json", "generation_config.json"]
)
def test_a_missing_truncated_or_foreign_file_is_named(folder: Path, file: str) -> None:
    path = folder / file
    whole = path.read_bytes()
    foreign = b'{"a": 1}' if file.endswith("json") else b"\x08\0\0\0\0\0\0\0{}      "
    for content in (whole[: len(whole) // 2], b"", b"\x80\x04not a model", b"[]", foreign):
        path.write_bytes(content)
        with pytest.raises(Problem, match=file):
            load(folder, device="cpu")
    path.unlink()
    with pytest.raises(Problem, match=file):
        load(folder, device="cpu")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="no model folder"):
        load(tmp_path / "nowhere")


def test_weights_of_another_shape_are_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["config"]["model"]["model_dim"] = 64
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(Problem, match=r"config\.json is not the file that was saved"):
        load(folder, device="cpu")
    save_file(load_file(folder / "model.safetensors"), folder / "model.safetensors")  # without checksums
    with pytest.raises(Problem, match=r"model\.safetensors does not fit"):
        load(folder, device="cpu")


def test_a_vocabulary_of_another_size_is_refused(folder: Path) -> None:
    from noise2text.data.tokenizer import learn_characters

    learn_characters(["abc"]).save(folder / "tokenizer.json")
    with pytest.raises(Problem, match=r"tokenizer\.json"):
        load(folder, device="cpu")


def test_bfloat16_can_be_asked_for(folder: Path) -> None:
    model = load(folder, device="cpu", precision="bfloat16")
    assert next(model.parameters()).dtype == torch.bfloat16
    assert len(model.generate(TEXTS, steps=2, stop_early=0).texts) == 2
    with pytest.raises(Problem, match="precision"):
        load(folder, precision="int3")
