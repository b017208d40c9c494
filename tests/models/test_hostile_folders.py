"""Model folders from strangers: what is damaged, mixed or out of proportion is refused in one sentence."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from noise2text.core.allocation_limit import AllocationLimit
from noise2text.core.errors import MAX_MESSAGE, Problem
from noise2text.core.weights_file import open_weights, read_weights, save_weights
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import model_files
from noise2text.models.folder import load, save
from noise2text.models.registry import find_recipe

from ..conftest import SMALL, Make
from ..folders import write_model_folder

Change = Callable[[Path], object]


@pytest.fixture
def folder(small: Make, tmp_path: Path) -> Path:
    config = find_recipe("difformer").preset("tiny").replace(SMALL | {"noise_factor": 2.0})
    save(tmp_path / "model", small(), recipe="difformer", config=config)
    return tmp_path / "model"


def edit(**changes: Any) -> Change:
    """A change of config.json, with the checksums that belong to it, as an attacker would write them."""

    def change(folder: Path) -> None:
        contents = json.loads((folder / "config.json").read_text())
        for name, value in changes.items():
            section, _, setting = name.partition("__")
            target = contents["config"][section] if setting else contents
            target[setting or section] = value
        text = json.dumps(contents).encode()
        (folder / "config.json").write_bytes(text)
        sign(folder)

    return change


def write(name: str, contents: str | bytes) -> Change:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        sign(folder)

    return change


def sign(folder: Path) -> None:
    """Give the files the right checksums."""
    files = {name: (folder / name).read_bytes() for name in ("config.json", "tokenizer.json")}
    save_weights(folder / "model.safetensors", load_file(folder / "model.safetensors"), files=files)


def replace_weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    def apply(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return apply


def put_folder(name: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return change


def put_pipe(name: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return change


def fill(value: float) -> Change:
    return replace_weights(lambda tensors: tensors[min(tensors)].view(-1)[:1].fill_(value))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit(model__encoder_layers=10**9), "encoder_layers may be 1,000"),
        (edit(model__encoder_layers=900), "far larger network than its weights"),
        (edit(model__model_dim=10**8), "model_dim may be 16,777,216"),
        (edit(model__model_dim=10**7), "far larger network than its weights"),
        (edit(model__ffn_dim=10**7), "far larger network than its weights"),
        (edit(model__embedding_dim=10**6), "far larger network than its weights"),
        (edit(model__model_dim=34), "does not fit its config.json"),
        (edit(data__max_source=10**12), "max_source may be"),
        (edit(vocabulary=10**12), "tokens, but the model"),
        (edit(vocabulary=[1]), "tokens, but the model"),
        (edit(config=[]), "not a noise2text configuration"),
        (edit(config={"model": 3}), "model is a section"),
        (edit(config={"model": {"heads": [[]]}}), "heads takes a whole number"),
        (edit(recipe=["difformer"]), "needs the recipe"),
        (edit(recipe="x" * 100_000), "needs the recipe"),
        (edit(engine=3), "names an engine that is not known"),
        (
            edit(engine={"name": "onnxruntime", "precision": [], "parameters": 1, "graphs": {"step": 3}}),
            "engine",
        ),
        (
            edit(engine={"name": "onnxruntime", "precision": "float32", "parameters": 1, "graphs": []}),
            "graphs",
        ),
        (write("config.json", "[" * 100_000), "not whole JSON"),
        (write("config.json", '{"format": ' + "9" * 5000 + "}"), "not whole JSON"),
        (write("generation_config.json", '{"a":' * 50_000), "not whole JSON"),
        (write("generation_config.json", '{"steps": "x"}'), "steps takes a whole number"),
        (write("generation_config.json", '{"noise_beam": 1000000000}'), "noise_beam may be 100,000"),
        (write("tokenizer.json", "[" * 100_000), "not a tokenizer"),
        (write("tokenizer.json", "{}"), "not a tokenizer"),
        (put_folder("model.safetensors"), "is not a file"),
        (put_folder("config.json"), "is not a file"),
        (put_pipe("model.safetensors"), "is not a file"),
        (put_pipe("tokenizer.json"), "is not a file"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 100), "not a whole safetensors"),
        (lambda folder: (folder / "model.safetensors").unlink(), "is missing"),
        (fill(float("nan")), "not finite numbers"),
        (fill(float("inf")), "not finite numbers"),
        (replace_weights(lambda tensors: tensors.pop(min(tensors))), "does not fit its config.json"),
        (
            replace_weights(lambda tensors: tensors.update({n: t.int() for n, t in tensors.items()})),
            "holds values of type torch.int32",
        ),
    ],
)
def test_a_hostile_folder_is_refused_in_a_sentence(change: Change, message: str, folder: Path) -> None:
    change(folder)
    with pytest.raises(Problem, match=message) as problem:
        load(folder, device="cpu", precision="float32")
    assert len(str(problem.value)) <= MAX_MESSAGE


def test_the_folder_that_a_model_was_trained_from_is_not_read(tmp_path: Path) -> None:
    """A model without its architecture would fit that of the folder; a stranger may name any folder."""
    other, new = write_model_folder("gpt2", tmp_path / "gpt2"), tmp_path / "new"
    recipe = find_recipe("pretrained-causal")
    changes = {"from_folder": str(other), "tokenizer": "folder", "max_source": 40, "max_target": 16}
    config = recipe.preset().replace(changes)
    model = recipe.build(config, Tokenizer.load(other / "tokenizer.json"))
    save(new, model, recipe=recipe.name, config=config)
    with pytest.raises(Problem, match=r"new/config\.json describes"):
        load(new, device="cpu", precision="float32")


def test_a_flipped_bit_of_any_file_is_noticed(folder: Path) -> None:
    """Of the weights, the tokenizer and the config; before there were checksums, such weights were loaded."""
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        whole = (folder / name).read_bytes()
        for position in range(len(whole) // 7, len(whole), len(whole) // 7):
            (folder / name).write_bytes(
                whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]
            )
            with pytest.raises(Problem):
                load(folder, device="cpu", precision="float32")
        (folder / name).write_bytes(whole)
    load(folder, device="cpu", precision="float32")


def test_a_folder_without_checksums_and_an_edited_generation_config_are_loaded(folder: Path) -> None:
    expected = (
        load(folder, device="cpu", precision="float32").generate(["7 may"], steps=3, stop_early=0).texts
    )
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors, folder / "model.safetensors")
    settings = json.loads((folder / "generation_config.json").read_text()) | {"steps": 3, "stop_early": 0}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    assert load(folder, device="cpu", precision="float32").generate(["7 may"]).texts == expected


def test_the_same_weights_are_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    tensors = read_weights(folder / "model.safetensors")
    contents = set()
    for number in range(5):
        save_weights(tmp_path / str(number), tensors, files={"a": b"x", "b": b"y"})
        contents.add((tmp_path / str(number)).read_bytes())
    assert len(contents) == 1
    with open_weights(tmp_path / "0") as weights:
        assert weights.checksums.keys() == {"tensors", "a", "b"}


def test_a_reader_never_sees_two_models_at_once(small: Make, folder: Path, tokenizer: Tokenizer) -> None:
    """While a writer replaces one model by another of a different shape, every load is of one of them."""
    recipe = find_recipe("difformer")
    configs = [
        recipe.preset("tiny").replace(SMALL | {"noise_factor": 2.0, "ffn_dim": dim}) for dim in (32, 64)
    ]
    models = [recipe.build(config, tokenizer) for config in configs]
    states = {
        sum(map(torch.numel, state.values())): state for state in (each.state_dict() for each in models)
    }
    save(folder, models[1], recipe="difformer", config=configs[1])
    stop = threading.Event()

    def replace_again_and_again() -> None:
        while not stop.is_set():
            for model, config in zip(models, configs, strict=True):
                save(folder, model, recipe="difformer", config=config)

    writer = threading.Thread(target=replace_again_and_again)
    writer.start()
    try:
        for _ in range(15):
            found = load(folder, device="cpu", precision="float32").state_dict()
            expected = states[sum(map(torch.numel, found.values()))]
            assert all(torch.equal(found[name], weight) for name, weight in expected.items())
    finally:
        stop.set()
        writer.join()


def test_a_reader_waits_for_a_writer_between_two_of_its_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new config.json has its name already, the new weights follow while the reader waits."""
    shutil.copytree(folder, tmp_path / "between")
    shutil.copytree(folder, tmp_path / "new")
    edit(run__seed=7)(tmp_path / "new")  # the same network
    shutil.copy(tmp_path / "new" / "config.json", tmp_path / "between")

    def finish_writing(seconds: float) -> None:
        shutil.copy(tmp_path / "new" / "model.safetensors", tmp_path / "between")

    monkeypatch.setattr(model_files.time, "sleep", finish_writing)
    model = load(tmp_path / "between", device="cpu", precision="float32")
    assert model.origin is not None
    assert model.origin.config.run.seed == 7


def test_files_of_another_model_are_named(folder: Path, tmp_path: Path) -> None:
    """As a writer that was killed between two renames leaves them."""
    shutil.copytree(folder, tmp_path / "other")
    contents = json.loads((folder / "config.json").read_text())
    contents["config"]["run"]["seed"] = 7  # the same network
    (tmp_path / "other" / "config.json").write_text(json.dumps(contents))
    with pytest.raises(Problem, match=r"config\.json is not the file that was saved with model\.safetensors"):
        load(tmp_path / "other", device="cpu", precision="float32")


@pytest.mark.parametrize(
    "allocate",
    [
        lambda: torch.empty(10**5, 10**5),
        lambda: torch.nn.Linear(10**5, 10**5),
        lambda: torch.randn((10**5, 10**5)),
        lambda: torch.full(size=(10**10,), fill_value=0),
        lambda: torch.arange(10**10),
        lambda: torch.linspace(0, 1, 10**10),
        lambda: torch.eye(10**5),
        lambda: [torch.zeros(1) for _ in range(10**6)],
    ],
)
def test_nothing_is_allocated_beyond_the_limit(allocate: Callable[[], object]) -> None:
    with pytest.raises(Problem, match="far larger network"), AllocationLimit(1_000, 10, "config.json"):
        allocate()
    with AllocationLimit(1_000, 10, "config.json"):
        torch.nn.Linear(30, 30)
