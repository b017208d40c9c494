"""Benchmark generation: a table over batch sizes, steps and candidates, and how the time scales.

Every row times whole calls of `generate`: tokenizing, encoding, sampling, rounding, selecting. The fraction
of the peak counts the products with weights, relative to the rate at which this machine multiplied two
square matrices of the same type in the same run.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from noise2text.commands.bench_ctranslate2 import report_ctranslate2
from noise2text.commands.bench_tools import (
    count_flops,
    make_random_texts,
    measure_peak_flops,
    measure_seconds,
    read_peak_memory,
    reset_peak_memory,
)
from noise2text.commands.ctranslate2_baseline import require_transformer
from noise2text.commands.huggingface_baseline import build_marian, make_marian_call
from noise2text.core.command_line import parse_numbers
from noise2text.core.errors import Problem
from noise2text.data.corpus import read_references, read_sources
from noise2text.models import Model
from noise2text.models.folder import load, load_config

__all__ = [
    "BenchRow",
    "bench",
    "bench_marian",
    "bench_report",
    "list_configurations",
    "measure_scaling",
    "take_likeliest_length",
]

BATCHES_PER_CALL = 4  # batches per timed call, unless the batch is one sentence


@dataclasses.dataclass(frozen=True)
class BenchRow:
    """One row of the table."""

    label: str
    batch: int
    seconds: float  # per batch
    first_call: float = 0.0  # seconds of the first call, which may compile or capture graphs
    memory: float = 0.0  # peak memory of a GPU in MiB
    peak_fraction: float = 0.0  # of the machine's peak FLOPS; 0 if the products cannot be counted

    @property
    def sentences_per_second(self) -> float:
        """Sentences per second."""
        return self.batch / self.seconds


def bench(
    model: Model,
    *,
    batches: Iterable[int],
    steps: Iterable[int],
    candidates: Iterable[int],
    length: int = 25,
    repeats: int = 7,
    texts: Sequence[str] = (),
) -> Iterator[BenchRow]:
    """One row per batch size and configuration; without `texts`, random ones of `length` tokens are used."""
    peak = measure_peak_flops(model.device, _dtype(model))
    configurations = list_configurations(model, steps, candidates, length)
    for batch in batches:
        count = batch if batch == 1 else batch * BATCHES_PER_CALL
        inputs = (
            [texts[i % len(texts)] for i in range(count)]
            if texts
            else make_random_texts(model, count, length)
        )
        for label, overrides in configurations.items():
            call = partial(model.generate, inputs, batch=batch, **overrides)
            start = time.perf_counter()
            reset_peak_memory(model.device)
            call()
            first_call = time.perf_counter() - start
            seconds = measure_seconds(call, model.device, repeats=repeats) * batch / count
            flops = count_flops(model, partial(model.generate, inputs[:batch], batch=batch, **overrides))
            peak_fraction = flops / seconds / peak
            yield BenchRow(label, batch, seconds, first_call, read_peak_memory(model.device), peak_fraction)


def bench_report(
    model: Model,
    folder: Path,
    *,
    batches: str,
    steps: str,
    candidates: str,
    length: int,
    input: str | None,
    peer: str | None,
    as_json: bool,
    teacher: Path | None = None,
) -> Iterator[str]:
    """The lines that `noise2text bench` prints: a table, row by row, or JSON."""
    if peer not in (None, "hf", "ctranslate2"):
        raise Problem(f"--peer must be hf or ctranslate2, not {peer!r}.")
    if teacher is not None and peer != "ctranslate2":
        raise Problem("--teacher is the Transformer that --peer ctranslate2 runs: give both.")
    sizes = parse_numbers(batches, "--batches")
    length = min(length, getattr(model, "max_target", length))
    if peer == "ctranslate2":
        if as_json:
            raise Problem("--peer ctranslate2 prints a table only: leave out --json.")
        steps_and_candidates = parse_numbers(steps, "--steps"), parse_numbers(candidates, "--candidates")
        yield from _report_ctranslate2(
            model, folder, teacher, sizes, *steps_and_candidates, length=length, input=input
        )
        return
    texts = list(read_sources(input)) if input else []
    if input and not texts:
        raise Problem(f"{input} has no texts to time.")
    rows = bench(
        model,
        batches=sizes,
        steps=parse_numbers(steps, "--steps"),
        candidates=parse_numbers(candidates, "--candidates"),
        length=length,
        texts=texts,
    )
    if peer:
        rows = chain(rows, bench_marian(model, batches=sizes, length=length, **_shape(folder)))
    yield from _format_json(model, rows) if as_json else _format_table(model, rows)


def _describe_machine(model: Model) -> dict[str, str]:
    where = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else "CPU"
    return {"device": where, "torch": torch.__version__, "type": str(_dtype(model))}


def _format_json(model: Model, rows: Iterable[BenchRow]) -> Iterator[str]:
    table = [dataclasses.asdict(row) | {"rate": row.sentences_per_second} for row in rows]
    yield json.dumps(_describe_machine(model) | {"rows": table, "growth": measure_scaling(model)}, indent=2)


def _format_table(model: Model, rows: Iterable[BenchRow]) -> Iterator[str]:
    """The lines of the table as they are measured, and then how the time scales."""
    machine = _describe_machine(model)
    yield f"{machine['device']}, torch {machine['torch']}, {machine['type'].removeprefix('torch.')}"
    yield f"batch  {'configuration':<25}   ms/batch sentences/s first s    MiB  of peak"
    for row in rows:
        peak = f"{row.peak_fraction:.1%}" if row.peak_fraction else "–"
        memory = f"{row.memory:.0f}" if row.memory else "–"  # that of a CPU is not measured
        yield (
            f"{row.batch:>5}  {row.label:<25} {1000 * row.seconds:>10.2f} {row.sentences_per_second:>11.1f} "
            f"{row.first_call:>7.2f} {memory:>6} {peak:>8}"
        )
    for name, power in measure_scaling(model).items():
        yield f"twice the {name}: {2**power:.2f} times the time"


def _report_ctranslate2(
    model: Model,
    folder: Path,
    teacher: Path | None,
    batches: Sequence[int],
    steps: Sequence[int],
    candidates: Sequence[int],
    *,
    length: int,
    input: str | None,
) -> Iterator[str]:
    """The table of `--peer ctranslate2`: with a trained Transformer on pairs, else of random weights."""
    if (teacher is None) != (input is None):
        raise Problem(
            "To compare texts with --peer ctranslate2, give both --teacher DIR, a Transformer, and --input, "
            "pairs of texts; without both, random weights are timed."
        )
    trained = None if teacher is None else require_transformer(load(teacher, device="cpu"), teacher)
    configurations = list_configurations(model, steps, candidates, length)
    if trained is not None:  # texts have the lengths that the models give them
        configurations = {name: take_likeliest_length(each, model) for name, each in configurations.items()}
        configurations["its own settings"] = {}
    yield from report_ctranslate2(
        model,
        trained,
        shape=_shape(folder) if trained is None else {},
        batches=batches,
        configurations=configurations,
        texts=list(read_sources(input)) if input else make_random_texts(model, 64, length),
        references=[each[0] for each in read_references(input)] if input else [],
        length=length,
    )


def _shape(folder: Path) -> dict[str, Any]:
    """The sizes of a peer of the same shape."""
    recipe, config = load_config(folder)
    if not all(hasattr(getattr(config, "model", None), name) for name in ("model_dim", "ffn_dim", "heads")):
        raise Problem(f"There is no peer of the shape of {recipe.name}: leave out --peer.")
    layers = getattr(config.model, "decoder_layers", None) or getattr(config.model, "layers", 6)
    return {
        "model_dim": config.model.model_dim,
        "ffn_dim": config.model.ffn_dim,
        "heads": config.model.heads,
        "layers": layers,
    }


def _dtype(model: Model) -> torch.dtype:
    return next(model.parameters(), torch.zeros(1)).dtype


def take_likeliest_length(settings: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """A configuration for real texts: the likeliest length in place of a fixed one."""
    free = {key: value for key, value in settings.items() if key != "length"}
    is_searched = "length" in settings and hasattr(model.generation_config, "length_beam")
    return free | {"length_beam": 1} if is_searched else free


def list_configurations(
    model: Model, steps: Iterable[int], candidates: Iterable[int], length: int
) -> dict[str, dict[str, Any]]:
    """The generation settings to time, by label; a model without steps is timed with its defaults."""
    fields = {field.name for field in dataclasses.fields(model.generation_config)}
    if not {"steps", "noise_beam"} <= fields:
        return {"default settings": {}}
    fixed_length = {"length": length} if "length" in fields else {}
    return {
        f"{_count(each, 'candidate')}, {_count(count, 'step')}": {
            "steps": count,
            "stop_early": 0,
            "noise_beam": each,
        }
        | fixed_length
        for each in candidates
        for count in steps
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def measure_scaling(model: Model, *, length: int = 16, steps: int = 8, repeats: int = 5) -> dict[str, float]:
    """How the time scales with length, steps, candidates and batch: log₂ of the ratio when each is doubled.

    1 means linear growth; 0 means that doubling costs nothing.
    """
    max_length = getattr(model, "max_target", 2 * length)
    length = max(1, min(length, max_length // 2))
    base = {"length": length, "steps": steps, "candidates": 4, "batch": 16}
    if "default settings" in list_configurations(model, [steps], [4], length):
        return {}
    base_seconds = _time_configuration(model, base, repeats)
    return {
        name: _log2(_time_configuration(model, base | {name: 2 * value}, repeats) / base_seconds)
        for name, value in base.items()
        if name != "length" or (hasattr(model.generation_config, "length") and 2 * length <= max_length)
    }


def _time_configuration(model: Model, point: dict[str, int], repeats: int) -> float:
    (overrides,) = list_configurations(
        model, [point["steps"]], [point["candidates"]], point["length"]
    ).values()
    texts = make_random_texts(model, point["batch"], point["length"])
    call = partial(model.generate, texts, batch=point["batch"], select="score", **overrides)
    return measure_seconds(call, model.device, repeats=repeats)


def _log2(ratio: float) -> float:
    return float(torch.tensor(ratio).log2())


def bench_marian(
    model: Model,
    *,
    batches: Iterable[int],
    length: int = 25,
    dtype: torch.dtype | None = None,
    **shape: int,
) -> Iterator[BenchRow]:
    """Rows of Hugging Face's `generate` with a Marian model of this shape and random weights.

    Tokenizing is not timed. `dtype` is that of the model by default.
    """
    marian = build_marian(model, length=length, dtype=dtype or _dtype(model), **shape)
    for batch in batches:
        for name, beams in (("greedy", 1), ("beam 5", 5)):
            call = make_marian_call(marian, batch, length=length, beams=beams)
            yield BenchRow(f"transformers, {name}", batch, measure_seconds(call, model.device, repeats=5))
