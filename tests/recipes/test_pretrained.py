"""From a folder of transformers to a trained model of this package, which needs the folder no more."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from noise2text import load
from noise2text.commands.train import train
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.registry import find_recipe

from ..folders import FAMILIES, SEQ2SEQ_FAMILIES, write_model_folder

TEXTS = ["sunday, 7 april 1957", "12. mai 2001"]
NAMES = {"gpt2": "pretrained-causal"} | dict.fromkeys(SEQ2SEQ_FAMILIES, "pretrained-seq2seq")
KINDS = [*NAMES.items(), ("t5", "gpvae"), ("bart", "gpvae")]
FEW: dict[str, Any] = {
    "optim.steps": 2,
    "max_source": 40,
    "max_target": 16,
    "max_tokens": 512,
    "validation_sentences": 4,
    "beam": 2,
}


def files(dates: Path) -> dict[str, Any]:
    return {split: str(dates / f"{split}.jsonl") for split in ("train", "valid")} | {"device": "cpu"}


@pytest.mark.parametrize(("family", "name"), KINDS)
def test_a_folder_is_fine_tuned_saved_and_needed_no_more(
    family: str, name: str, dates: Path, tmp_path: Path
) -> None:
    folder = write_model_folder(family, tmp_path / "folder")
    changes = FEW | {"from_folder": str(folder)}
    model = train(name, out=tmp_path / "run", changes=changes, **files(dates))
    made = model.generate(TEXTS, seed=1)
    shutil.rmtree(folder)
    shutil.move(tmp_path / "run", tmp_path / "moved")
    again = load(tmp_path / "moved", device="cpu").generate(TEXTS, seed=1)
    assert made.candidates == again.candidates
    assert made.scores == again.scores
    kept = {path.name for path in (tmp_path / "moved").iterdir() if path.is_file()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json"} <= kept
    assert not any(name.endswith((".bin", ".pt", ".py", ".pkl")) for name in kept)
    config = json.loads((tmp_path / "moved" / "config.json").read_text())
    assert json.loads(config["config"]["model"]["architecture"])["model_type"] == family


@pytest.mark.parametrize("family", FAMILIES)
def test_training_starts_from_the_weights_of_the_folder(family: str, tmp_path: Path) -> None:
    recipe, folder = find_recipe(NAMES[family]), write_model_folder(family, tmp_path)
    config = recipe.preset().replace(from_folder=str(folder), max_source=40, max_target=16)
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    model = recipe.build(config, tokenizer)
    recipe.initialize(config, model)
    kind: Any = transformers.AutoModelForCausalLM if family == "gpt2" else transformers.AutoModelForSeq2SeqLM
    theirs = kind.from_pretrained(folder).state_dict()
    ours = model.network.model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert not model.use_cuda_graphs  # a cache that grows cannot be captured on a GPU


def test_a_run_resumes_without_its_folder(dates: Path, tmp_path: Path) -> None:
    folder = write_model_folder("t5", tmp_path / "folder")
    changes = FEW | {"from_folder": str(folder), "save_every": 1}
    train("gpvae", out=tmp_path / "whole", changes=changes | {"optim.steps": 3}, **files(dates))
    train("gpvae", out=tmp_path / "halved", changes=changes, **files(dates))
    shutil.rmtree(folder)
    train("gpvae", out=tmp_path / "halved", changes={"optim.steps": 3}, resume=True, **files(dates))
    last = [sorted((tmp_path / name).glob("checkpoint-*"))[-1] for name in ("whole", "halved")]
    whole, halved = (load(each, device="cpu").state_dict() for each in last)
    assert all(torch.equal(whole[name], halved[name]) for name in whole)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: shutil.rmtree(folder), "no tokenizer.json"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "no tokenizer.json"),
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
        (
            lambda folder: (folder / "config.json").write_text("{}"),
            "no configuration that transformers knows",
        ),
        (lambda folder: (folder / "config.json").write_text("{"), "no configuration that transformers knows"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\x80\x04."), "cannot be read"),
    ],
)
def test_an_incomplete_folder_is_refused_in_one_sentence(
    spoil: Any, said: str, dates: Path, tmp_path: Path
) -> None:
    folder = write_model_folder("t5", tmp_path / "folder")
    spoil(folder)
    with pytest.raises(Problem, match=said):
        train(
            "pretrained-seq2seq",
            out=tmp_path / "run",
            changes=FEW | {"from_folder": str(folder)},
            **files(dates),
        )


def test_no_pickle_is_read(dates: Path, tmp_path: Path) -> None:
    folder = write_model_folder("gpt2", tmp_path / "folder")
    weights = transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(Problem, match=r"no weights in .* must be safetensors"):
        train(
            "pretrained-causal",
            out=tmp_path / "run",
            changes=FEW | {"from_folder": str(folder)},
            **files(dates),
        )


@pytest.mark.parametrize(
    ("family", "name"), [("t5", "pretrained-causal"), ("bart", "pretrained-causal"), ("gpt2", "gpvae")]
)
def test_a_folder_of_the_other_kind_is_refused(family: str, name: str, dates: Path, tmp_path: Path) -> None:
    folder = write_model_folder(family, tmp_path / "folder")
    with pytest.raises(Problem, match=f"The {family} of .* is no .*choose the other recipe"):
        train(name, out=tmp_path / "run", changes=FEW | {"from_folder": str(folder)}, **files(dates))


SHAPE: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
SHAPE |= {"intermediate_size": 16, "vocab_size": 80}


@pytest.mark.parametrize(
    ("facts", "name", "said"),
    [
        ({"model_type": "bert"} | SHAPE, "pretrained-causal", "bert of .* does not return its keys"),
        ({"model_type": "mamba"} | SHAPE, "pretrained-causal", "mamba of .* does not return its keys"),
        (
            {"model_type": "encoder-decoder"}
            | {part: {"model_type": "bert"} for part in ("encoder", "decoder")},
            "pretrained-seq2seq",
            "consists of two models",
        ),
    ],
)
def test_a_model_that_is_built_otherwise_is_refused(
    facts: dict[str, Any], name: str, said: str, dates: Path, tmp_path: Path
) -> None:
    folder = write_model_folder("gpt2", tmp_path / "folder")
    (folder / "config.json").write_text(json.dumps(facts))
    with pytest.raises(Problem, match=said):
        train(name, out=tmp_path / "run", changes=FEW | {"from_folder": str(folder)}, **files(dates))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "name its folder in the setting from_folder"),
        ({"tokenizer": "characters"}, "Name a pre-trained model's folder"),
        ({"from_folder": "somewhere", "from_scratch": True}, "not both"),
        ({"tokenizer": "words"}, "tokenizer is one of bpe, characters, wordpiece, folder"),
    ],
)
def test_what_to_start_from_must_be_said(
    changes: dict[str, Any], said: str, dates: Path, tmp_path: Path
) -> None:
    for _ in range(2):  # what was refused leaves nothing behind that would be in the way
        with pytest.raises(Problem, match=said):
            train("pretrained-causal", out=tmp_path / "run", changes=FEW | changes, **files(dates))


def test_texts_that_are_too_long_for_the_model_are_refused(dates: Path, tmp_path: Path) -> None:
    folder = write_model_folder("gpt2", tmp_path / "folder")
    with pytest.raises(Problem, match="has 96 positions, but the longest pair needs 241"):
        train(
            "pretrained-causal",
            out=tmp_path / "run",
            changes=FEW | {"from_folder": str(folder), "max_source": 200, "max_target": 40},
            **files(dates),
        )


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(dates: Path, tmp_path: Path) -> None:
    folder = write_model_folder("gpt2", tmp_path / "folder")
    with pytest.raises(Problem, match="has 51 tokens, but its tokenizer"):
        train(
            "pretrained-causal",
            out=tmp_path / "run",
            changes=FEW | {"from_folder": str(folder), "tokenizer": "bpe", "vocabulary": 300},
            **files(dates),
        )


@pytest.mark.parametrize(
    ("name", "preset", "vocabulary", "millions"),
    [
        ("pretrained-causal", "gpt2", 50_257, 124),  # "117M" in DiffuSeq's table 4
        ("pretrained-causal", "gpt2-large", 50_257, 774),
        ("pretrained-seq2seq", "t5-base", 32_128, 223),  # "220M"
    ],
)
def test_the_presets_have_the_sizes_of_diffuseqs_table_4(
    name: str, preset: str, vocabulary: int, millions: int, tokenizer: Tokenizer
) -> None:
    recipe = find_recipe(name)
    with torch.device("meta"):
        model = recipe.build(recipe.preset(preset), tokenizer)
    missing = (vocabulary - len(tokenizer)) * recipe.preset(preset).model.model_dim
    parameters = sum(parameter.numel() for parameter in model.parameters()) + missing
    assert round(parameters / 1e6) == millions
