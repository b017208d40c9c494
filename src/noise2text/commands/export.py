"""Export a trained model to ONNX, and count how many of its texts stay the same."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from noise2text.core.errors import Problem
from noise2text.core.files import explain_write_failures, flush_to_disk
from noise2text.core.locks import lock_output
from noise2text.models import DiffusionModel, Model
from noise2text.models.accelerate import missing_acceleration
from noise2text.models.exported import find_network, replace_network
from noise2text.models.folder import load, load_config, load_engine, save

if TYPE_CHECKING:
    from noise2text.acceleration.onnx_runtime import OnnxRuntimeConfig

__all__ = ["PRECISIONS", "Agreement", "check_export", "export", "require_export_folder"]

PRECISIONS = ("float32", "int8")


@dataclass(frozen=True)
class Agreement:
    """The number of texts that are the same from the exported model and from torch in a precision."""

    precision: str
    same: int
    texts: int


def export(model_folder: Path, out: Path, *, precision: str = "float32") -> OnnxRuntimeConfig:
    """The runtime configuration of the exported model, which is now in the folder `out`."""
    with lock_output(out):
        return _export(model_folder, out, precision=precision)


def _export(model_folder: Path, out: Path, *, precision: str) -> OnnxRuntimeConfig:
    """The runtime configuration, after the graphs and the model folder are written."""
    try:
        from noise2text.acceleration.int8 import quantize_linears
        from noise2text.acceleration.onnx_export import export_onnx, onnx_graphs
        from noise2text.acceleration.onnx_runtime import OnnxDenoiser, OnnxRuntimeConfig, hash_graph
    except ImportError as error:
        raise missing_acceleration("An export") from error
    if precision not in PRECISIONS:
        raise Problem(f"A model is exported in {' or '.join(PRECISIONS)}, not in {precision!r}.")
    recipe, config = load_config(model_folder)
    if load_engine(model_folder):
        raise Problem(f"{model_folder} is already exported; export the original model.")
    _restore_interrupted(out)
    require_export_folder(out)
    model = load(model_folder, device="cpu", precision="float32")
    network = find_network(model)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if precision == "int8":  # not by move_to, whose attention is for torch's kernels
        quantize_linears(network, min_weights=1)
    onnx_files = {
        name: export_onnx(graph)
        for name, graph in onnx_graphs(network, timestep_per_position=_has_position_timesteps(model)).items()
    }
    fingerprints = {name: hash_graph(content) for name, content in onnx_files.items()}
    engine = OnnxRuntimeConfig(precision=precision, parameters=parameters, graphs=fingerprints)
    replace_network(model, OnnxDenoiser(network.embedding, {}))
    with explain_write_failures(out):
        draft = _start_draft(out)
        try:
            for name, content in onnx_files.items():
                (draft / f"{name}.onnx").write_bytes(content)
                flush_to_disk(draft / f"{name}.onnx")
            save(draft, model, recipe=recipe.name, config=config, engine=engine)
            _replace_folder(out, draft)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return engine


def _draft_folder(out: Path) -> Path:
    return out.resolve().with_name(f"{out.resolve().name}.draft")


def _replaced_folder(out: Path) -> Path:
    return out.resolve().with_name(f"{out.resolve().name}.replaced")


def _start_draft(out: Path) -> Path:
    """A folder beside `out` that will take its place, with the user's own files of `out`."""
    draft = _draft_folder(out)
    shutil.rmtree(draft, ignore_errors=True)  # of an export that was killed
    if out.is_dir():
        shutil.copytree(out, draft, ignore=shutil.ignore_patterns("*.onnx", "*.draft", "*.safetensors"))
    draft.mkdir(parents=True, exist_ok=True)
    return draft


def _replace_folder(out: Path, draft: Path) -> None:
    """Put the complete draft in the place of `out`, so that no reader sees files of two exports."""
    replaced = _replaced_folder(out)
    shutil.rmtree(replaced, ignore_errors=True)
    if out.exists():
        os.rename(out.resolve(), replaced)
    os.rename(draft, out.resolve())
    shutil.rmtree(replaced, ignore_errors=True)


def _restore_interrupted(out: Path) -> None:
    """Put back the folder of an export that was killed between the two renames of `_replace_folder`."""
    if not out.exists() and _replaced_folder(out).is_dir():
        os.rename(_replaced_folder(out), out.resolve())


def _has_position_timesteps(model: Model) -> bool:
    """Whether each position has its own timestep."""
    assert isinstance(model, DiffusionModel)
    level = model.build_sampling_schedule(model.generation_config)(torch.ones(1, device=model.device), 2)
    return bool(level.alpha.shape[1] > 1)


def require_export_folder(out: Path) -> None:
    """Raise a Problem if the folder has other content, such as the model itself."""
    if out.exists() and not out.is_dir():
        raise Problem(f"{out} is a file; choose a folder for the exported model.")
    suffixes = {path.suffix for path in out.iterdir()} if out.is_dir() else set()
    interrupted = suffixes <= {".onnx", ".draft"}  # an export that was stopped leaves only graphs
    if not interrupted and not ((out / "config.json").exists() and load_engine(out)):
        raise Problem(f"{out} is not empty and not an exported model; choose a new or empty folder.")


def check_export(
    model_folder: Path,
    exported: Path,
    texts: Sequence[str],
    *,
    seed: int = 0,
    batch: int = 32,
    overrides: Mapping[str, Any],
) -> Iterator[Agreement]:
    """The agreement with torch in the precision of the export and, if that differs, in float32."""
    engine = load_engine(exported)
    if engine is None:
        raise Problem(f"{exported} is not an exported model.")

    def generate(folder: Path, precision: str) -> list[str]:
        model = load(folder, device="cpu", precision=precision)
        return model.generate(texts, seed=seed, batch=batch, progress=True, **overrides).texts

    ours = generate(exported, engine.precision)
    for precision in dict.fromkeys((engine.precision, "float32")):
        theirs = generate(model_folder, precision)
        yield Agreement(precision, sum(a == b for a, b in zip(ours, theirs, strict=True)), len(texts))
