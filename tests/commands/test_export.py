"""An exported model writes what the trained one writes, whatever it is asked, and says what it cannot do."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import external_data_helper
from safetensors.torch import load_file, save_file

from noise2text import load
from noise2text.acceleration.int8 import has_fast_int8
from noise2text.acceleration.onnx_runtime import OnnxDenoiser, hash_graph
from noise2text.commands.bench import bench, bench_report
from noise2text.commands.export import check_export, export, require_export_folder
from noise2text.commands.inspect import inspect_model
from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem
from noise2text.data.layouts.base import Source
from noise2text.data.tokenizer import learn_characters
from noise2text.models import DiffusionModel, Model
from noise2text.models.exported import find_network
from noise2text.models.folder import load_engine, save
from noise2text.models.registry import find_recipe
from noise2text.models.requests import GenerationRequest
from noise2text.nn.denoiser import EncoderOutput, NoiseLevel

from ..conftest import lively, small_changes

TEXTS = ["sunday, 7 april 1957", "12. mai 2001", "x", "1 june 1999, a long way to write a date"]
OVERRIDES: dict[str, Any] = {"steps": 3, "stop_early": 0, "seed": 3}


def trained(name: str, folder: Path, **changes: Any) -> Path:
    """A folder of a small model with random weights."""
    tokenizer = learn_characters(["abcdefghijklmnopqrstuvwxyz áéíóúäöüûç,.-0123456789"])
    recipe = find_recipe(name)
    tiny = recipe.preset("tiny")
    config = recipe.resolve(apply_overrides(tiny, small_changes(name, changes), origin="test"), tokenizer)
    torch.manual_seed(0)
    system: Model = lively(recipe.build(config, tokenizer))
    save(folder, system, recipe=name, config=config)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Difformer of one layer a side, whose export takes little time."""
    folder = tmp_path_factory.mktemp("export") / "model"
    return trained("difformer", folder, noise_factor=2.0, decoder_layers=1, source_dropout=0.1)


@pytest.fixture(scope="module")
def exported(model: Path) -> Path:
    """The same, exported."""
    out = model.parent / "exported"
    export(model, out)
    return out


def pair(model: Path, exported: Path) -> tuple[Any, Any]:
    return load(model, device="cpu", precision="float32"), load(exported)


def test_guided_texts_are_those_of_torch(model: Path, exported: Path) -> None:
    theirs, ours = pair(model, exported)
    # Untrained weights hardly look at the source, so guidance has to be strong.
    plain, expected = (theirs.generate(TEXTS, **OVERRIDES, guidance_weight=weight) for weight in (0.0, 200.0))
    assert ours.generate(TEXTS, **OVERRIDES, guidance_weight=200.0).candidates == expected.candidates
    assert plain.candidates != expected.candidates


def test_the_texts_are_those_of_torch_in_any_batch(model: Path, exported: Path) -> None:
    theirs, ours = pair(model, exported)
    expected = theirs.generate(TEXTS, **OVERRIDES)
    assert len({text for texts in expected.candidates for text in texts}) > 3  # there is something to compare
    for batch in (1, 3):
        made = ours.generate(TEXTS, batch=batch, **OVERRIDES)
        assert made.candidates == expected.candidates
        for mine, known in zip(made.scores, expected.scores, strict=True):
            assert mine == pytest.approx(known, abs=1e-4)


def test_requests_with_other_steps_get_their_texts(model: Path, exported: Path) -> None:
    """The graph of a step has one timestep for all rows, so they do not share a batch."""
    _, ours = pair(model, exported)
    seed, settings = OVERRIDES["seed"], {k: v for k, v in OVERRIDES.items() if k != "seed"}
    overrides = [settings, settings | {"steps": 5}]
    requests = [GenerationRequest(TEXTS, seed=seed, overrides=each) for each in overrides]
    for output, each in zip(ours.generate_together(requests), overrides, strict=True):
        assert output.candidates == ours.generate(TEXTS, seed=seed, **each).candidates


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (1, 4, 16, 48), (5, 2, 7, 3)])
def test_estimates_agree_at_other_sizes_than_the_exported_ones(
    model: Path, exported: Path, sizes: tuple[int, int, int, int]
) -> None:
    sentences, candidates, length, width = sizes
    torch.manual_seed(1)
    source = Source(torch.randint(0, 20, (sentences, width)), torch.arange(width).expand(sentences, -1) > 1)
    found = []
    for system in pair(model, exported):
        denoiser = system.denoiser
        encoded: EncoderOutput = denoiser.encode(source)
        torch.manual_seed(2)
        z = torch.randn(sentences * candidates, length, 8)
        canvas = system.layout.make_empty_canvas(
            source, torch.full((sentences, candidates), length), width=length
        )
        level = NoiseLevel(torch.ones(1, 1, 1), torch.ones(1, 1, 1), torch.full((1, 1), 0.3))
        estimate = denoiser(z, level, encoded, denoiser.constrain(canvas), z / 2)
        found.append([encoded.states, encoded.keys, estimate.z0, estimate.hidden, denoiser.logits(estimate)])
    for expected, made in zip(*found, strict=True):
        torch.testing.assert_close(made, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "wish",
    [
        {"prefix": "19"},
        {"suffix": "-01"},
        {"template": "19___{2}-___"},
        {"length": 7},
        {"clamp": True, "solver": "multistep"},
        {"strategy": "token-by-token", "length_beam": 1, "noise_beam": 1},
    ],
    ids=lambda wish: next(iter(wish)),
)
def test_control_works_as_in_torch(model: Path, exported: Path, wish: dict[str, Any]) -> None:
    theirs, ours = pair(model, exported)
    expected = theirs.generate(TEXTS[:2], **OVERRIDES, **wish).candidates
    assert ours.generate(TEXTS[:2], **OVERRIDES, **wish).candidates == expected


def test_an_exported_model_has_no_weights_of_the_network(model: Path, exported: Path) -> None:
    (network,) = [part for part in load(exported).modules() if isinstance(part, OnnxDenoiser)]
    assert {name for name, _ in network.named_parameters()} == {"embedding.weight"}
    smaller, larger = (folder / "model.safetensors" for folder in (exported, model))
    assert smaller.stat().st_size < larger.stat().st_size / 2
    assert inspect_model(exported)["model"]["parameters"] == inspect_model(model)["model"]["parameters"]


def test_files_tell_nothing_of_where_they_were_made(exported: Path) -> None:
    for name in ("encode", "step"):
        assert str(Path(torch.__file__).parent).encode() not in (exported / f"{name}.onnx").read_bytes()
        assert b".py" not in (exported / f"{name}.onnx").read_bytes()


def test_the_check_counts_the_texts_that_are_the_same(model: Path, exported: Path) -> None:
    settings = {"steps": 2, "stop_early": 0}
    (found,) = check_export(model, exported, TEXTS, overrides=settings)
    assert (found.precision, found.same, found.texts) == ("float32", 4, 4)
    other = trained("difformer", model.parent / "other", noise_factor=2.0, decoder_layers=1, embedding_dim=16)
    (found,) = check_export(other, exported, TEXTS, overrides=settings)
    assert found.same < 4


@pytest.mark.parametrize("file", ["encode.onnx", "step.onnx"])
def test_a_changed_or_missing_graph_is_refused(exported: Path, file: str, tmp_path: Path) -> None:
    copy = shutil.copytree(exported, tmp_path / "copy")
    content = bytearray((copy / file).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / file).write_bytes(content)
    with pytest.raises(Problem, match=rf"{file} is not the file that was exported"):
        load(copy)
    (copy / file).unlink()
    with pytest.raises(Problem, match=rf"{file} cannot be read"):
        load(copy)


def test_weights_in_another_file_are_not_read(exported: Path, tmp_path: Path) -> None:
    """onnxruntime would look for them in the working directory, and wherever else the graph says."""
    copy = shutil.copytree(exported, tmp_path / "copy")
    graph = onnx.load(copy / "step.onnx")
    tensor = graph.graph.initializer[0]
    external_data_helper.set_external_data(tensor, "../elsewhere.bin")
    content = graph.SerializeToString()
    (copy / "step.onnx").write_bytes(content)
    config = json.loads((copy / "config.json").read_text())
    config["engine"]["graphs"]["step"] = hash_graph(content)
    (copy / "config.json").write_text(json.dumps(config))
    save_file(load_file(copy / "model.safetensors"), copy / "model.safetensors")  # without checksums
    with pytest.raises(Problem, match=r"step.onnx keeps weights in another file"):
        load(copy)


@pytest.mark.parametrize("graphs", [{}, {"step": "0", "../step": "0"}, {"encode": "0"}, None, "step", 7])
def test_a_changed_configuration_is_refused(exported: Path, graphs: object, tmp_path: Path) -> None:
    copy = shutil.copytree(exported, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    config["engine"]["graphs"] = graphs
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(Problem, match="does not name the graphs"):
        load(copy)
    config["engine"] = {"name": "another"}
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(Problem, match="engine that is not known"):
        load(copy)


def test_an_export_that_was_stopped_can_be_made_again(tmp_path: Path) -> None:
    """What it left are graphs alone; a folder with anything else in it is somebody's."""
    for name in ("encode.onnx", "step.onnx.draft"):
        (tmp_path / name).write_bytes(b"")
    require_export_folder(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(Problem, match="is not empty and not an exported model"):
        require_export_folder(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("place", ["out.draft", "out.replaced", "out"])
def test_an_export_killed_over_another_leaves_the_old_one_or_the_new_one(
    model: Path, exported: Path, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is killed when it moves something to the place, or into it."""
    other = trained("difformer", tmp_path / "other", noise_factor=2.0, decoder_layers=1, seed=1)
    out = shutil.copytree(exported, tmp_path / "out")
    (out / "README.md").write_text("mine")
    before = load(out).generate(TEXTS, **OVERRIDES).candidates

    def stop_at_place(move: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        def stop_or_move(source: Any, target: Any) -> None:
            if place in (Path(target).name, Path(target).parent.name):
                raise KeyboardInterrupt
            move(source, target)

        return stop_or_move

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stop_at_place(os.replace))
        patch.setattr(os, "rename", stop_at_place(os.rename))
        with pytest.raises(KeyboardInterrupt):
            export(other, out)
    if place == "out":  # for this moment the folder is absent, and the next export finds it
        assert not out.exists()
    else:
        assert load(out).generate(TEXTS, **OVERRIDES).candidates == before
    export(model, out)
    assert load(out).generate(TEXTS, **OVERRIDES).candidates == before
    assert (out / "README.md").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out"]


@pytest.mark.parametrize("package", ["onnxruntime", "onnxscript", "onnx"])
def test_a_missing_package_is_named_with_the_extra(
    model: Path, exported: Path, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Problem, match=rf"{package}.*pip install 'noise2text\[export\]'"):
        load(exported) if package == "onnxruntime" else export(model, tmp_path / "out")


def test_what_an_exported_model_cannot_do_is_said(model: Path, exported: Path, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="exported in float32"):
        load(exported, precision="int8")
    with pytest.raises(Problem, match="runs on a CPU"):
        load(exported, device="meta")
    with pytest.raises(Problem, match="is already exported"):
        export(exported, tmp_path / "out")
    with pytest.raises(Problem, match="float32 or int8"):
        export(model, tmp_path / "out", precision="bfloat16")
    with pytest.raises(Problem, match="is not empty"):
        export(model, model)
    assert not (tmp_path / "out").exists()


def test_a_system_without_diffusion_says_so(tmp_path: Path) -> None:
    model = trained("transformer", tmp_path / "model")
    with pytest.raises(Problem, match="AutoregressiveModel cannot be exported"):
        export(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_int8_is_refused_where_sums_are_not_exact(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(exported, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    config["engine"]["precision"] = "int8"
    (copy / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("torch.cpu._is_vnni_supported", lambda: False)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    with pytest.raises(Problem, match="VNNI"):
        load(copy)


@pytest.mark.long
@pytest.mark.skipif(not has_fast_int8(), reason="it is refused on this CPU, as the test above says")
def test_int8_writes_what_torch_writes_in_int8_in_any_batch(model: Path, tmp_path: Path) -> None:
    engine = export(model, tmp_path / "out", precision="int8")
    assert load_engine(tmp_path / "out") == engine
    theirs, ours = load(model, device="cpu", precision="int8"), load(tmp_path / "out")
    together = ours.generate(TEXTS, **OVERRIDES)
    assert together.candidates == theirs.generate(TEXTS, **OVERRIDES).candidates
    assert ours.generate(TEXTS, batch=1, **OVERRIDES).candidates == together.candidates


@pytest.mark.long
def test_the_same_model_gives_the_same_files(model: Path, exported: Path, tmp_path: Path) -> None:
    assert export(model, tmp_path / "out") == load_engine(exported)


def test_the_products_of_an_exported_model_are_not_counted(exported: Path) -> None:
    system = load(exported)
    few = {"batches": "1", "steps": "1", "candidates": "1", "length": 5, "input": None, "peer": None}
    lines = list(bench_report(system, exported, **few, as_json=False))  # type: ignore[arg-type]
    assert lines[2].endswith("–")
    plain = load(exported.parent / "model", device="cpu")
    (row,) = bench(plain, batches=[1], steps=[1], candidates=[1], length=5)
    assert row.peak_fraction > 0


def test_what_embeds_its_source_by_another_table_is_refused(tmp_path: Path) -> None:
    model = trained("diffuseq-decoupled", tmp_path / "model")
    with pytest.raises(Problem, match="a second table of embeddings"):
        export(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    "name, settings",
    [
        ("seqdiffuseq", {"prior_rate": 0.5}),
        ("dinoiser", {}),
        ("cdcd", {}),
        ("ar-diffusion", {}),
        ("diffuseq", {"prefix": "19"}),
        ("diffuseq-kernel", {}),
        ("diffuseq-epsilon", {}),
        ("diffuseq-guided", {"guidance_weight": 0.5}),
        ("diffuseq-mean", {}),
        ("diffuseq-position-sigmoid", {"sampling_noise_factor": 2.0}),
        ("word-by-word", {}),
        ("diffusion-lm", {}),
    ],
)
def test_every_diffusion_recipe_writes_what_torch_writes(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    model = trained(name, tmp_path / "model")
    export(model, tmp_path / "out")
    theirs, ours = pair(model, tmp_path / "out")
    assert isinstance(find_network(ours), OnnxDenoiser)
    overrides = {
        key: value
        for key, value in OVERRIDES.items()
        if key == "seed" or hasattr(theirs.generation_config, key)
    }
    expected = theirs.generate(TEXTS, noise_beam=2, **overrides, **settings)
    assert ours.generate(TEXTS, noise_beam=2, **overrides, **settings).candidates == expected.candidates
    assert isinstance(ours, DiffusionModel)
    if name == "diffusion-lm":
        assert ours.generate_pairs(2, steps=2) == theirs.generate_pairs(2, steps=2)
