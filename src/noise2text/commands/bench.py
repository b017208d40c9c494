"""How fast a model generates on this machine: a table over batches, steps and candidates, and how cost grows.

Every row times whole calls of `generate`: tokenizing, reading, walking, rounding, choosing. The share of the
peak counts the products with weights, against the largest rate at which this machine multiplied two square
matrices of the same type in the same run.
"""

from __future__ import annotations

import dataclasses
import json
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from noise2text.acceleration.int8 import Int8Linear
from noise2text.acceleration.onnx_runtime import Sessions
from noise2text.commands.transformers_baseline import peer_call, peer_model
from noise2text.core.errors import Problem
from noise2text.data.corpus import read_sources
from noise2text.models import System
from noise2text.models.folder import settings_of

__all__ = [
    "Row",
    "bench",
    "growth",
    "made_up_texts",
    "median_seconds",
    "peer_rows",
    "report",
    "sized",
]

STREAM = 4  # batches in a timed call, unless the batch is one sentence


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    batch: int
    seconds: float  # a batch
    first: float = 0.0  # of the first call, which may have to prepare
    memory: float = 0.0  # at the most, in MiB; of a GPU
    share: float = 0.0  # of the machine's rate of multiplication; 0 where products cannot be counted

    @property
    def rate(self) -> float:
        """Sentences a second."""
        return self.batch / self.seconds


def bench(
    system: System,
    *,
    batches: Iterable[int],
    steps: Iterable[int],
    candidates: Iterable[int],
    length: int = 25,
    repeats: int = 7,
    texts: Sequence[str] = (),
) -> Iterator[Row]:
    """A row for each setting that the system has; made-up texts of `length` tokens stand in for texts."""
    peak = peak_rate(system.device, _dtype(system))
    settings = sized(system, steps, candidates, length)
    for batch in batches:
        count = batch if batch == 1 else batch * STREAM
        own = [texts[i % len(texts)] for i in range(count)] if texts else made_up_texts(system, count, length)
        for what, how in settings.items():
            call = partial(system.generate, own, batch=batch, **how)
            begin = time.perf_counter()
            _reset(system.device)
            call()
            first = time.perf_counter() - begin
            seconds = median_seconds(call, system.device, repeats=repeats) * batch / count
            products = _products(system, partial(system.generate, own[:batch], batch=batch, **how))
            share = products / seconds / peak
            yield Row(what, batch, seconds, first, _memory(system.device), share)


def report(
    system: System,
    folder: Path,
    *,
    batches: str,
    steps: str,
    candidates: str,
    length: int,
    input: str | None,
    peer: str | None,
    as_json: bool,
) -> Iterator[str]:
    """The lines that `noise2text bench` prints: a table as it grows, or JSON."""
    if peer not in (None, "hf"):
        raise Problem(f"The peer is hf, not {peer!r}.")
    sizes = _numbers(batches, "batches")
    length = min(length, getattr(system, "max_target", length))
    texts = list(read_sources(input)) if input else []
    if input and not texts:
        raise Problem(f"{input} holds no texts to time.")
    rows = bench(
        system,
        batches=sizes,
        steps=_numbers(steps, "steps"),
        candidates=_numbers(candidates, "candidates"),
        length=length,
        texts=texts,
    )
    if peer:
        rows = chain(rows, peer_rows(system, batches=sizes, length=length, **_shape(folder)))
    where = torch.cuda.get_device_name(system.device) if system.device.type == "cuda" else "CPU"
    facts = {"device": where, "torch": torch.__version__, "type": str(_dtype(system))}
    if as_json:
        table = [dataclasses.asdict(row) | {"rate": row.rate} for row in rows]
        yield json.dumps(facts | {"rows": table, "growth": growth(system)}, indent=2)
        return
    yield ", ".join(facts.values())
    yield f"batch  {'what':<26} ms a batch  sentences/s  first s     MiB  of peak"
    for row in rows:
        yield (
            f"{row.batch:>5}  {row.what:<26} {1000 * row.seconds:>10.2f} {row.rate:>12.1f} "
            f"{row.first:>8.2f} {row.memory:>7.0f} {f'{row.share:.1%}' if row.share else '–':>8}"
        )
    for name, power in growth(system).items():
        yield f"twice the {name}: {2**power:.2f} times the time"


def _numbers(text: str, name: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise Problem(f"--{name} takes whole numbers above 0 with commas between them, not {text!r}.")
    return found


def _shape(folder: Path) -> dict[str, Any]:
    """The sizes of a model of the same shape."""
    recipe, settings = settings_of(folder)
    if not all(hasattr(settings, name) for name in ("width", "ffn", "heads")):
        raise Problem(f"A model of {recipe.name} has no Marian model of the same shape: leave --peer out.")
    layers = getattr(settings, "decoder_layers", None) or getattr(settings, "layers", 6)
    return {"width": settings.width, "ffn": settings.ffn, "heads": settings.heads, "layers": layers}


def _dtype(system: System) -> torch.dtype:
    return next(system.parameters(), torch.zeros(1)).dtype


def sized(
    system: System, steps: Iterable[int], candidates: Iterable[int], length: int
) -> dict[str, dict[str, Any]]:
    """The settings to time, by what to call them; a system without steps has its own only."""
    fields = {field.name for field in dataclasses.fields(system.how)}
    if not {"steps", "noise_beam"} <= fields:
        return {"its own settings": {}}
    exact = {"length": length} if "length" in fields else {}
    return {
        f"{each} candidates, {count} steps": {"steps": count, "stop_early": 0, "noise_beam": each} | exact
        for each in candidates
        for count in steps
    }


def growth(system: System, *, length: int = 16, steps: int = 8, repeats: int = 5) -> dict[str, float]:
    """How cost grows with each of its causes: log₂ of the time when it doubles (1 is linear, 0 is free)."""
    room = getattr(system, "max_target", 2 * length)
    length = max(1, min(length, room // 2))
    base = {"length": length, "steps": steps, "candidates": 4, "batch": 16}
    if "its own settings" in sized(system, [steps], [4], length):
        return {}
    before = _timed(system, base, repeats)
    return {
        name: _log2(_timed(system, base | {name: 2 * value}, repeats) / before)
        for name, value in base.items()
        if name != "length" or (hasattr(system.how, "length") and 2 * length <= room)
    }


def _timed(system: System, at: dict[str, int], repeats: int) -> float:
    (how,) = sized(system, [at["steps"]], [at["candidates"]], at["length"]).values()
    texts = made_up_texts(system, at["batch"], at["length"])
    call = partial(system.generate, texts, batch=at["batch"], select="score", **how)
    return median_seconds(call, system.device, repeats=repeats)


def _log2(ratio: float) -> float:
    return float(torch.tensor(ratio).log2())


def median_seconds(work: Callable[[], object], device: torch.device, *, repeats: int = 7) -> float:
    """The median time of the work, after two runs that do not count."""
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def made_up_texts(system: System, count: int, length: int) -> list[str]:
    """Texts of so many tokens of the system's vocabulary, as nearly as they can be written."""
    chance = random.Random(0)
    plain = [token for token in range(len(system.tokenizer)) if token not in system.tokenizer.specials]
    length = min(length, system.max_source)
    texts = system.tokenizer.decode([chance.choices(plain, k=length) for _ in range(count)])
    if not all(texts):
        raise Problem("The vocabulary of this model is too odd to make up texts from it; give --input.")
    return texts


def peak_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of a product of two square matrices."""
    size = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / median_seconds(lambda: a @ b, device, repeats=5)


def _products(system: System, call: Callable[[], object]) -> float:
    """How many operations the products with weights take in a call; 0 if other engines hide them."""
    if any(isinstance(module, Sessions) for module in system.modules()):
        return 0.0
    with _counted(system) as total:
        call()
    return float(total[0])


@contextmanager
def _counted(system: System) -> Iterator[list[int]]:
    """Counts what the linear layers do, without recorded graphs, which call none."""
    total = [0]

    def count(module: nn.Linear | Int8Linear, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        total[0] += 2 * module.in_features * output.numel()

    hooks = [
        m.register_forward_hook(count) for m in system.modules() if isinstance(m, nn.Linear | Int8Linear)
    ]
    recorded = getattr(system, "captures", None)
    if recorded is not None:
        system.captures = None
    try:
        yield total
    finally:
        for hook in hooks:
            hook.remove()
        if recorded is not None:
            system.captures = recorded


def _reset(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _memory(device: torch.device) -> float:
    return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0


def peer_rows(
    system: System,
    *,
    batches: Iterable[int],
    length: int = 25,
    dtype: torch.dtype | None = None,
    **shape: int,
) -> Iterator[Row]:
    """Hugging Face's `generate` with a Marian model of this shape and random weights, from tensors on.

    Its weights are of the system's type, unless `dtype` says otherwise.
    """
    model = peer_model(system, length=length, dtype=dtype or _dtype(system), **shape)
    for batch in batches:
        for name, beams in (("greedy", 1), ("beam 5", 5)):
            call = peer_call(model, batch, length=length, beams=beams)
            yield Row(f"transformers, {name}", batch, median_seconds(call, system.device, repeats=5))
