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

from noise2text.commands.bench import measure_peak_flops
from noise2text.commands.profile_kernels import profile_kernels
from noise2text.core.config import apply_overrides
from noise2text.core.devices import autocast, find_device, find_dtype
from noise2text.core.errors import Problem
from noise2text.data.layouts.base import Canvas
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import Model
from noise2text.models.folder import load_config
from noise2text.models.registry import Recipe
from noise2text.models.shipped import find_model_folder
from noise2text.training.loop import train_steps
from noise2text.training.objective import DiffusionObjective, Objective
from noise2text.training.optimizer import build_adamw
from noise2text.training.step_runner import EagerStep, GraphedStep, MicroBatch, StepOutput, StepRunner, fuse

__all__ = ["TrainingSpeed", "measure_accelerations", "measure_training", "training_report"]

WARMUP_STEPS = 6  # steps that do not count, among them both falls of the coin of self-conditioning


@dataclasses.dataclass(frozen=True)
class TrainingSpeed:
    """One way to train, and how fast it was."""

    acceleration: str
    rows: int
    length: int  # padded tokens a side
    first_step: float  # seconds until the first step was done
    step_seconds: float  # seconds a step, after the first ones
    parts: Mapping[str, float]  # seconds of a step's parts
    peak_fraction: float  # of the machine's rate of multiplication
    memory: float  # at the most, in MiB; of a GPU
    kernels: Mapping[str, float] = dataclasses.field(
        default_factory=dict
    )  # seconds of a step's, if asked for

    @property
    def tokens_per_second(self) -> float:
        """Padded tokens a side."""
        return self.rows * self.length / self.step_seconds

    @property
    def pairs_per_second(self) -> float:
        """Pairs."""
        return self.rows / self.step_seconds

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        rates = {"tokens_per_second": self.tokens_per_second, "pairs_per_second": self.pairs_per_second}
        return dataclasses.asdict(self) | rates

    def format_line(self, eager: float) -> str:
        """One line for people; `eager` is the seconds of an eager step."""
        parts = ", ".join(f"{name} {1000 * value:.1f} ms" for name, value in self.parts.items())
        return (
            f"{self.acceleration:<9} {self.tokens_per_second:>9,.0f} tokens/s {self.pairs_per_second:>8,.0f} "
            f"pairs/s {1000 * self.step_seconds:7.1f} ms per step ({eager / self.step_seconds:.2f} × eager), "
            f"first step {self.first_step:.1f} s, {self.peak_fraction:.0%} of peak, "
            f"{self.memory:,.0f} MiB; {parts}"
        )


def measure_accelerations(
    recipe: Recipe,
    config: Any,
    tokenizer: Tokenizer,
    *,
    device: torch.device,
    length: int,
    rows: int = 0,
    steps: int = 30,
    kernels: bool = False,
) -> Iterator[TrainingSpeed]:
    """The pace of every acceleration that the device has, each from fresh weights; with `kernels`, theirs."""
    _require_steps(recipe)
    rows = rows or max(1, config.optim.max_tokens // length)
    for acceleration in ("none", "recorded", "compiled") if device.type == "cuda" else ("none",):
        yield measure_training(
            recipe,
            config,
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


def training_report(
    model: str | Path, *, device: str | None, precision: str, length: int, rows: int, as_json: bool
) -> Iterator[str]:
    """The lines that `noise2text bench --train` prints: what training a model like this one would take."""
    if length < 1 or rows < 0:
        raise Problem(f"A batch has at least 1 token a row and 0 rows, not {length} and {rows}.")
    recipe, config = load_config(find_model_folder(model))
    _require_steps(recipe)
    config = apply_overrides(config, {"precision": precision}, origin="bench --train")
    tokenizer = Tokenizer.load(find_model_folder(model) / "tokenizer.json")
    length = min(length, config.data.max_source, config.data.max_target)
    speeds = measure_accelerations(
        recipe, config, tokenizer, device=find_device(device), length=length, rows=rows
    )
    if as_json:
        yield json.dumps([speed.as_json() for speed in speeds], indent=2)
        return
    eager = 0.0
    for speed in speeds:
        eager = eager or speed.step_seconds
        yield speed.format_line(eager)


def measure_training(
    recipe: Recipe,
    config: Any,
    tokenizer: Tokenizer,
    acceleration: str,
    *,
    device: torch.device,
    length: int,
    rows: int,
    steps: int,
    kernels: bool = False,
) -> TrainingSpeed:
    """How fast a recipe's steps are, accelerated so."""
    torch.manual_seed(config.run.seed)
    model: Model = recipe.build(config, tokenizer).to(device)
    objective = recipe.objective(config, model)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    batches = _random_batches(model, rows, length, device)
    precision = model.resolve_precision(config.run.precision)
    eager = EagerStep(partial(autocast, precision, device))
    flops = _count_flops(eager, objective, batches(0)[0])
    if acceleration == "compiled":
        fuse(objective)
    step_runner: StepRunner = eager if acceleration == "none" else GraphedStep(eager)
    run_steps = _TimedTraining(objective, build_adamw(model, config.optim, device), device)
    first_step = run_steps(batches, step_runner, 1)
    run_steps(batches, step_runner, WARMUP_STEPS - 1)
    step_seconds = run_steps(batches, step_runner, steps) / steps
    return TrainingSpeed(
        acceleration,
        rows,
        length,
        first_step,
        step_seconds,
        _time_parts(run_steps, batches, step_runner, device),
        flops / step_seconds / measure_peak_flops(device, find_dtype(precision, device)),
        torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0,
        _time_kernels(run_steps, batches, step_runner, device) if kernels else {},
    )


class _TimedTraining:
    """Goes on training from call to call; answers with the seconds that so many steps took."""

    def __init__(self, objective: Objective, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self.objective, self.optimizer, self.device, self.steps_done = objective, optimizer, device, 0

    def __call__(
        self, batches: Callable[[int], Sequence[Canvas]], step_runner: StepRunner, steps: int
    ) -> float:
        start = time.perf_counter()
        for _ in train_steps(
            self.objective,
            self.optimizer,
            batches,
            first=self.steps_done + 1,
            last=self.steps_done + steps,
            peak_lr=1e-5,
            lr_schedule=lambda step: 1.0,
            clip_norm=1.0,
            seed=0,
            step_runner=step_runner,
            is_logged=lambda step: False,  # as are all but few steps of a run
        ):
            pass
        self.steps_done += steps
        _synchronize(self.device)
        return time.perf_counter() - start


def _random_batches(
    model: Model, rows: int, length: int, device: torch.device
) -> Callable[[int], Sequence[Canvas]]:
    """Batches of random tokens, put together on the host as those of a corpus are."""
    rng = np.random.default_rng(0)
    ordinary_tokens = [
        token for token in range(len(model.tokenizer)) if token not in model.tokenizer.special_tokens
    ]
    corpus, lengths = rng.choice(ordinary_tokens, size=4 * rows * length), np.full(rows, length)

    def batches(step: int) -> Sequence[Canvas]:
        starts = np.random.default_rng(step).permutation(4 * rows)[:rows] * length
        sources = RaggedRows.from_slices(corpus, starts, lengths)
        return [model.layout.make_canvas(sources, sources, shape=(length, length)).to(device)]

    return batches


def _count_flops(eager: EagerStep, objective: Objective, canvas: Canvas) -> float:
    """How many operations the products of one pass take, forward and backward, without a guess."""
    from torch.utils.flop_counter import FlopCounterMode

    objective.train()
    objective.log_terms(False)
    keys = torch.arange(len(canvas.tokens), device=canvas.tokens.device)
    micro_batch = MicroBatch(canvas, keys, torch.tensor(0), objective.counts(canvas))
    with _without_self_conditioning(objective), FlopCounterMode(display=False) as counter:
        eager(objective, micro_batch)
    for parameter in objective.parameters():
        parameter.grad = None
    return float(counter.get_total_flops())


@contextmanager
def _without_self_conditioning(objective: Objective) -> Iterator[None]:
    """Within, no pass has a guess: the counter cannot follow what has no gradients."""
    diffusion_objectives = [part for part in objective.modules() if isinstance(part, DiffusionObjective)]
    before = [part.self_conditioning for part in diffusion_objectives]
    for part in diffusion_objectives:
        part.self_conditioning = 0.0
    try:
        yield
    finally:
        for part, rate in zip(diffusion_objectives, before, strict=True):
            part.self_conditioning = rate


def _time_parts(
    run_steps: _TimedTraining, batches: Any, step_runner: StepRunner, device: torch.device, steps: int = 5
) -> dict[str, float]:
    """The mean seconds of putting a batch together, of its pass, and of the update."""
    times: dict[str, list[float]] = {"batch": [], "pass": []}

    def time_call(name: str, work: Callable[[], Any]) -> Any:
        _synchronize(device)
        start = time.perf_counter()
        done = work()
        _synchronize(device)
        times[name].append(time.perf_counter() - start)
        return done

    class TimedRunner:
        def clear_gradients(self, parameters: Any) -> None:
            step_runner.clear_gradients(parameters)

        def __call__(self, objective: Objective, batch: MicroBatch) -> StepOutput:
            output: StepOutput = time_call("pass", lambda: step_runner(objective, batch))
            return output

    step_seconds = (
        run_steps(lambda step: time_call("batch", lambda: batches(step)), TimedRunner(), steps) / steps
    )
    parts = {name: statistics.fmean(values) for name, values in times.items()}
    return parts | {"update": max(0.0, step_seconds - sum(parts.values()))}


def _time_kernels(
    run_steps: _TimedTraining, batches: Any, step_runner: StepRunner, device: torch.device, steps: int = 5
) -> dict[str, float]:
    """The seconds that each kernel takes of a step."""
    seconds_by_kernel = profile_kernels(lambda: run_steps(batches, step_runner, steps), device)
    return {name: seconds / steps for name, seconds in seconds_by_kernel.items()}


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
