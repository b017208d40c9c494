"""A trained model as a folder that onnxruntime runs, and how many of its texts are the trained model's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from noise2text.acceleration.onnx_export import graphs, onnx_of
from noise2text.acceleration.onnx_runtime import Engine, Sessions, fingerprint
from noise2text.core.errors import Problem
from noise2text.core.files import write_whole
from noise2text.models import Diffusion, System
from noise2text.models.exported import network_of, put
from noise2text.models.folder import engine_of, load, save, settings_of

__all__ = ["PRECISIONS", "Agreement", "check", "export", "require_room"]

PRECISIONS = ("float32", "int8")


@dataclass(frozen=True)
class Agreement:
    """How many texts are the same from the exported model and from torch, in a precision of torch's."""

    precision: str
    same: int
    texts: int


def export(model: Path, out: Path, *, precision: str = "float32") -> Engine:
    """The engine of the exported model that is now in the folder `out`."""
    if precision not in PRECISIONS:
        raise Problem(f"A model is exported in {' or '.join(PRECISIONS)}, not in {precision!r}.")
    recipe, settings = settings_of(model)
    if engine_of(model):
        raise Problem(f"{model} is an exported model already; export the model that it was made of.")
    require_room(out)
    system = load(model, device="cpu", precision="float32")
    network = network_of(system)
    parameters = sum(parameter.numel() for parameter in system.parameters())
    system.place(torch.device("cpu"), precision)
    try:
        made = {name: onnx_of(graph) for name, graph in graphs(network, clocks=_clocks(system)).items()}
        out.mkdir(parents=True, exist_ok=True)
        for name, content in made.items():  # all at once: what is in the folder stays until the new is made
            write_whole(out / f"{name}.onnx", lambda path, content=content: path.write_bytes(content))  # type: ignore[misc]
        written = {name: fingerprint(content) for name, content in made.items()}
        engine = Engine(precision=precision, parameters=parameters, graphs=written)
        put(system, Sessions(network.space, {}))
        save(out, system, recipe=recipe.name, settings=settings, engine=engine)
    except OSError as error:
        raise Problem(f"{out} cannot be written: {error.strerror}.") from error
    return engine


def _clocks(system: System) -> bool:
    """Whether each position has a clock of its own."""
    assert isinstance(system, Diffusion)
    level = system.down(system.how)(torch.ones(1, device=system.device), 2)
    return bool(level.alpha.shape[1] > 1)


def require_room(out: Path) -> None:
    """Refuse a folder that holds something else, such as the model itself."""
    if out.exists() and not out.is_dir():
        raise Problem(f"{out} is a file; name a folder for the exported model.")
    left = {path.suffix for path in out.iterdir()} if out.is_dir() else set()
    interrupted = left <= {".onnx", ".draft"}  # an export that was stopped leaves graphs alone
    if not interrupted and not ((out / "config.json").exists() and engine_of(out)):
        raise Problem(f"{out} holds something else than an exported model; name a new or empty folder.")


def check(
    model: Path,
    exported: Path,
    texts: Sequence[str],
    *,
    seed: int = 0,
    batch: int = 32,
    settings: Mapping[str, Any],
) -> Iterator[Agreement]:
    """The agreement with torch in the precision of the export, then in float32 if that is another."""
    engine = engine_of(exported)
    if engine is None:
        raise Problem(f"{exported} is not an exported model.")

    def write(folder: Path, precision: str) -> list[str]:
        system = load(folder, device="cpu", precision=precision)
        return system.generate(texts, seed=seed, batch=batch, **settings).texts

    ours = write(exported, engine.precision)
    for precision in dict.fromkeys((engine.precision, "float32")):
        theirs = write(model, precision)
        yield Agreement(precision, sum(a == b for a, b in zip(ours, theirs, strict=True)), len(texts))
