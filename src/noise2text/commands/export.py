"""Export a trained model to ONNX, and count how many of its texts stay the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from noise2text.acceleration.onnx_export import export_onnx, onnx_graphs
from noise2text.acceleration.onnx_runtime import OnnxDenoiser, OnnxRuntimeConfig, hash_graph
from noise2text.core.errors import Problem
from noise2text.core.files import write_atomically
from noise2text.models import DiffusionModel, Model
from noise2text.models.exported import find_network, replace_network
from noise2text.models.folder import load, load_config, load_engine, save

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
    if precision not in PRECISIONS:
        raise Problem(f"A model is exported in {' or '.join(PRECISIONS)}, not in {precision!r}.")
    recipe, config = load_config(model_folder)
    if load_engine(model_folder):
        raise Problem(f"{model_folder} is already exported; export the original model.")
    require_export_folder(out)
    model = load(model_folder, device="cpu", precision="float32")
    network = find_network(model)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    model.move_to(torch.device("cpu"), precision)
    try:
        onnx_files = {
            name: export_onnx(graph)
            for name, graph in onnx_graphs(
                network, timestep_per_position=_has_position_timesteps(model)
            ).items()
        }
        out.mkdir(parents=True, exist_ok=True)
        for name, content in onnx_files.items():  # after all exports, so that a failure keeps the old files
            write_atomically(out / f"{name}.onnx", lambda path, content=content: path.write_bytes(content))  # type: ignore[misc]
        fingerprints = {name: hash_graph(content) for name, content in onnx_files.items()}
        engine = OnnxRuntimeConfig(precision=precision, parameters=parameters, graphs=fingerprints)
        replace_network(model, OnnxDenoiser(network.embedding, {}))
        save(out, model, recipe=recipe.name, config=config, engine=engine)
    except OSError as error:
        raise Problem(f"{out} cannot be written: {error.strerror}.") from error
    return engine


def _has_position_timesteps(model: Model) -> bool:
    """Whether each position has a timestep of its own."""
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
        raise Problem(f"{out} has other content than an exported model; choose a new or empty folder.")


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
        return model.generate(texts, seed=seed, batch=batch, **overrides).texts

    ours = generate(exported, engine.precision)
    for precision in dict.fromkeys((engine.precision, "float32")):
        theirs = generate(model_folder, precision)
        yield Agreement(precision, sum(a == b for a, b in zip(ours, theirs, strict=True)), len(texts))
