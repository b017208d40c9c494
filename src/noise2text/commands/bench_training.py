"""How fast a model trains on this machine: whole steps over made-up pairs, plain, recorded and fused.

A step is all of it: the batch is put together on the host, sent, passed forward and backward, and the
weights are updated. Tokens are padded ones of a side; every pair fills its row. The parts of a step are timed
apart from its speed, since to time a part the host has to wait for it. The share of the peak counts the
products of one pass without self-conditioning, as torch's flop counter does, against two square matrices in
the same run.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noise2text.commands.bench import peak_rate
from noise2text.commands.profile_kernels import kernel_times
from noise2text.core.config import change
from noise2text.core.devices import autocast, find_device, find_dtype
from noise2text.core.errors import Problem
from noise2text.data.layouts.canvas import Canvas
from noise2text.data.ragged import Rows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import System
from noise2text.models.folder import settings_of
from noise2text.models.registry import Recipe
from noise2text.models.shipped import folder_of
from noise2text.training.loop import train_steps
from noise2text.training.objective import DiffusionObjective, Objective
from noise2text.training.optimizer import adamw
from noise2text.training.step_runner import MicroBatch, Pass, Passed, Plain, Recorded, fuse

__all__ = ["Pace", "pace", "paces", "report_training"]

WARM = 6  # steps that do not count, among them both falls of the coin of self-conditioning


@dataclasses.dataclass(frozen=True)
class Pace:
    """One way to train, and how fast it was."""

    acceleration: str
    rows: int
    length: int  # padded tokens a side
    first: float  # seconds until the first step was done
    step: float  # seconds a step, after the first ones
    parts: Mapping[str, float]  # seconds of a step's parts
    share: float  # of the machine's rate of multiplication
    memory: float  # at the most, in MiB; of a GPU
    kernels: Mapping[str, float] = dataclasses.field(
        default_factory=dict
    )  # seconds of a step's, if asked for

    @property
    def tokens_per_second(self) -> float:
        """Padded tokens a side."""
        return self.rows * self.length / self.step

    @property
    def pairs_per_second(self) -> float:
        """Pairs."""
        return self.rows / self.step

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        rates = {"tokens_per_second": self.tokens_per_second, "pairs_per_second": self.pairs_per_second}
        return dataclasses.asdict(self) | rates

    def line(self, plain: float) -> str:
        """One line for people; `plain` is how long a plain step took."""
        parts = ", ".join(f"{name} {1000 * value:.1f} ms" for name, value in self.parts.items())
        return (
            f"{self.acceleration:<9} {self.tokens_per_second:>9,.0f} tokens/s {self.pairs_per_second:>8,.0f} "
            f"pairs/s {1000 * self.step:7.1f} ms a step ({plain / self.step:.2f} × plain), first step "
            f"{self.first:.1f} s, {self.share:.0%} of peak, {self.memory:,.0f} MiB; {parts}"
        )


def paces(
    recipe: Recipe,
    settings: Any,
    tokenizer: Tokenizer,
    *,
    device: torch.device,
    length: int,
    rows: int = 0,
    steps: int = 30,
    kernels: bool = False,
) -> Iterator[Pace]:
    """The pace of every acceleration that the device has, each from fresh weights; with `kernels`, theirs."""
    _require_steps(recipe)
    rows = rows or max(1, settings.tokens // length)
    for acceleration in ("none", "recorded", "compiled") if device.type == "cuda" else ("none",):
        yield pace(
            recipe,
            settings,
            tokenizer,
            acceleration,
            device=device,
            length=length,
            rows=rows,
            steps=steps,
            kernels=kernels,
        )


def _require_steps(recipe: Recipe) -> None:
    if recipe.fit is not None:
        raise Problem(f"{recipe.name} takes its corpus in at once: it has no training steps to time.")


def report_training(
    model: str | Path, *, device: str | None, precision: str, length: int, rows: int, as_json: bool
) -> Iterator[str]:
    """The lines that `noise2text bench --train` prints: what training a model like this one would take."""
    if length < 1 or rows < 0:
        raise Problem(f"A batch has at least 1 token a row and 0 rows, not {length} and {rows}.")
    recipe, settings = settings_of(folder_of(model))
    _require_steps(recipe)
    settings = change(settings, {"precision": precision}, where="bench --train")
    tokenizer = Tokenizer.load(folder_of(model) / "tokenizer.json")
    length = min(length, settings.max_source, settings.max_target)
    found = paces(recipe, settings, tokenizer, device=find_device(device), length=length, rows=rows)
    if as_json:
        yield json.dumps([one.as_json() for one in found], indent=2)
        return
    plain = 0.0
    for one in found:
        plain = plain or one.step
        yield one.line(plain)


def pace(
    recipe: Recipe,
    settings: Any,
    tokenizer: Tokenizer,
    acceleration: str,
    *,
    device: torch.device,
    length: int,
    rows: int,
    steps: int,
    kernels: bool = False,
) -> Pace:
    """How fast a recipe's steps are, accelerated so."""
    torch.manual_seed(settings.seed)
    system: System = recipe.build(settings, tokenizer).to(device)
    objective = recipe.objective(settings, system)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    feed = _made_up(system, rows, length, device)
    precision = system.precision(settings.precision)
    plain = Plain(partial(autocast, precision, device))
    products = _products(plain, objective, feed(0)[0])
    if acceleration == "compiled":
        fuse(objective)
    run: Pass = plain if acceleration == "none" else Recorded(plain)
    go = _Steps(objective, adamw(system, settings, device), device)
    first = go(feed, run, 1)
    go(feed, run, WARM - 1)
    step = go(feed, run, steps) / steps
    return Pace(
        acceleration,
        rows,
        length,
        first,
        step,
        _parts(go, feed, run, device),
        products / step / peak_rate(device, find_dtype(precision, device)),
        torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0,
        _kernels(go, feed, run, device) if kernels else {},
    )


class _Steps:
    """Goes on training from call to call; answers with the seconds that so many steps took."""

    def __init__(self, objective: Objective, optimiser: torch.optim.Optimizer, device: torch.device) -> None:
        self.objective, self.optimiser, self.device, self.done = objective, optimiser, device, 0

    def __call__(self, feed: Callable[[int], Sequence[Canvas]], run: Pass, steps: int) -> float:
        begin = time.perf_counter()
        for _ in train_steps(
            self.objective,
            self.optimiser,
            feed,
            first=self.done + 1,
            last=self.done + steps,
            peak=1e-5,
            rate=lambda step: 1.0,
            clip=1.0,
            seed=0,
            run=run,
            looked=lambda step: False,  # as are all but few steps of a run
        ):
            pass
        self.done += steps
        _wait(self.device)
        return time.perf_counter() - begin


def _made_up(
    system: System, rows: int, length: int, device: torch.device
) -> Callable[[int], Sequence[Canvas]]:
    """Batches of random tokens, put together on the host as those of a corpus are."""
    chance = np.random.default_rng(0)
    plain = [token for token in range(len(system.tokenizer)) if token not in system.tokenizer.specials]
    corpus, lengths = chance.choice(plain, size=4 * rows * length), np.full(rows, length)

    def feed(step: int) -> Sequence[Canvas]:
        starts = np.random.default_rng(step).permutation(4 * rows)[:rows] * length
        sources = Rows.cut(corpus, starts, lengths)
        return [system.layout.canvas(sources, sources, shape=(length, length)).to(device)]

    return feed


def _products(plain: Plain, objective: Objective, canvas: Canvas) -> float:
    """How many operations the products of one pass take, forward and backward, without a guess."""
    from torch.utils.flop_counter import FlopCounterMode

    objective.train()
    objective.watch(False)
    keys = torch.arange(len(canvas.tokens), device=canvas.tokens.device)
    given = MicroBatch(canvas, keys, torch.tensor(0), objective.counts(canvas))
    with _unguessed(objective), FlopCounterMode(display=False) as counter:
        plain(objective, given)
    for parameter in objective.parameters():
        parameter.grad = None
    return float(counter.get_total_flops())


@contextmanager
def _unguessed(objective: Objective) -> Iterator[None]:
    """Within, no pass has a guess: the counter cannot follow what has no gradients."""
    diffusing = [part for part in objective.modules() if isinstance(part, DiffusionObjective)]
    before = [part.self_conditioning for part in diffusing]
    for part in diffusing:
        part.self_conditioning = 0.0
    try:
        yield
    finally:
        for part, share in zip(diffusing, before, strict=True):
            part.self_conditioning = share


def _parts(go: _Steps, feed: Any, run: Pass, device: torch.device, steps: int = 5) -> dict[str, float]:
    """The mean seconds of putting a batch together, of its pass, and of the update."""
    times: dict[str, list[float]] = {"batch": [], "pass": []}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        _wait(device)
        begin = time.perf_counter()
        done = work()
        _wait(device)
        times[name].append(time.perf_counter() - begin)
        return done

    class Timed:
        def clear(self, parameters: Any) -> None:
            run.clear(parameters)

        def __call__(self, objective: Objective, given: MicroBatch) -> Passed:
            passed: Passed = timed("pass", lambda: run(objective, given))
            return passed

    whole = go(lambda step: timed("batch", lambda: feed(step)), Timed(), steps) / steps
    parts = {name: statistics.fmean(values) for name, values in times.items()}
    return parts | {"update": max(0.0, whole - sum(parts.values()))}


def _kernels(go: _Steps, feed: Any, run: Pass, device: torch.device, steps: int = 5) -> dict[str, float]:
    """The seconds that each kernel takes of a step."""
    taken = kernel_times(lambda: go(feed, run, steps), device)
    return {name: seconds / steps for name, seconds in taken.items()}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
