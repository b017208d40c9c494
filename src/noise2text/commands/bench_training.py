"""How fast a model trains on this machine: steps over random pairs, eager, with CUDA graphs, and compiled.

A step assembles a batch on the host, sends it, runs forward and backward, and updates the weights. Tokens are
the padded tokens of one side; every pair fills its row. The parts of a step are timed separately from whole
steps, since timing a part makes the host wait for it. The fraction of the peak compares the matrix products
of one pass without self-conditioning, as torch's flop counter counts them, with a product of two square
matrices in the same run.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noise2text.commands.bench_tools import (
    measure_peak_flops,
    ordinary_tokens,
    read_peak_memory,
    reset_peak_memory,
)
from noise2text.commands.profile_kernels import profile_kernels
from noise2text.core.config import apply_overrides
from noise2text.core.devices import autocast, find_device, find_dtype
from noise2text.core.errors import Problem
from noise2text.data.layouts.base import Canvas
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import Model
from noise2text.models.accelerate import missing_acceleration
from noise2text.models.folder import load_config
from noise2text.models.registry import Recipe
from noise2text.models.shipped import find_model_folder
from noise2text.training.distributed import SingleProcess
from noise2text.training.loop import EagerPass, StepSettings, TrainingPass, train_steps
from noise2text.training.objective import DiffusionObjective, Objective
from noise2text.training.optimizer import build_adamw
from noise2text.training.process_group import ProcessGroup

__all__ = ["TrainingSpeed", "measure_accelerations", "measure_training", "training_report"]

WARMUP_STEPS = 6  # steps that are not timed, with and without self-conditioning

_Batches = Callable[[int], Sequence[Canvas]]


@dataclasses.dataclass(frozen=True)
class TrainingSpeed:
    """The speed of training with one acceleration."""

    acceleration: str
    rows: int
    length: int  # padded tokens per side
    first_step: float  # seconds of the first step
    step_seconds: float  # seconds per step, after the first ones
    parts: Mapping[str, float]  # seconds of each part of a step
    peak_fraction: float  # of the peak rate of matrix products
    memory: float  # peak memory of the GPU in MiB
    kernels: Mapping[str, float] = dataclasses.field(default_factory=dict)  # seconds per step, if profiled

    @property
    def tokens_per_second(self) -> float:
        """Padded tokens per side and second."""
        return self.rows * self.length / self.step_seconds

    @property
    def pairs_per_second(self) -> float:
        """Pairs per second."""
        return self.rows / self.step_seconds

    def as_json(self) -> dict[str, Any]:
        """All fields and rates as JSON values."""
        rates = {"tokens_per_second": self.tokens_per_second, "pairs_per_second": self.pairs_per_second}
        return dataclasses.asdict(self) | rates

    def format_line(self, eager: float) -> str:
        """One line to print; `eager` is the seconds of an eager step."""
        parts = ", ".join(f"{name} {1000 * value:.1f} ms" for name, value in self.parts.items())
        return (
            f"{self.acceleration:<11} {self.tokens_per_second:>9,.0f} tokens/s "
            f"{self.pairs_per_second:>8,.0f} pairs/s {1000 * self.step_seconds:7.1f} ms per step "
            f"({eager / self.step_seconds:.2f} × eager), "
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
    """The speed with every acceleration of the device, each from new weights; `kernels` profiles them."""
    _require_steps(recipe)
    rows = rows or max(1, config.optim.max_tokens // length)
    for acceleration in ("none", "cuda-graphs", "compiled") if device.type == "cuda" else ("none",):
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
        raise Problem(f"{recipe.name} is fitted in one go: it has no training steps to time.")


def training_report(
    model: str | Path, *, device: str | None, precision: str, length: int, rows: int, as_json: bool
) -> Iterator[str]:
    """The lines that `noise2text bench --training` prints: how fast a model like this one trains."""
    if length < 1 or rows < 0:
        raise Problem(f"A batch has at least 1 token per row and 0 rows, not {length} and {rows}.")
    recipe, config = load_config(find_model_folder(model))
    _require_steps(recipe)
    config = apply_overrides(config, {"precision": precision}, origin="bench --training")
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
    """How fast a recipe's training steps are with one acceleration."""
    torch.manual_seed(config.run.seed)
    model: Model = recipe.build(config, tokenizer).to(device)
    objective = recipe.objective(config, model)
    reset_peak_memory(device)
    batches = _random_batches(model, rows, length, device)
    precision = model.resolve_precision(config.run.precision)
    optimizer = build_adamw(model, config.optim, device)
    strategy = SingleProcess(objective, objective, ProcessGroup())
    eager_pass = EagerPass(strategy, optimizer, autocast(precision, device))
    flops = _count_flops(eager_pass, batches(0)[0])
    training = _TimedTraining(objective, optimizer, device, _accelerate(acceleration, eager_pass))
    first_step = training.run(batches, 1)
    training.run(batches, WARMUP_STEPS - 1)
    step_seconds = training.run(batches, steps) / steps
    return TrainingSpeed(
        acceleration,
        rows,
        length,
        first_step,
        step_seconds,
        training.time_parts(batches),
        flops / step_seconds / measure_peak_flops(device, find_dtype(precision, device)),
        read_peak_memory(device),
        training.time_kernels(batches) if kernels else {},
    )


def _accelerate(acceleration: str, eager_pass: EagerPass) -> TrainingPass:
    if acceleration == "none":
        return eager_pass
    try:
        from noise2text.acceleration.cuda_graph_training import CudaGraphTrainingPass
        from noise2text.acceleration.fused import fuse
    except ImportError as error:
        raise missing_acceleration(f"Training with the acceleration {acceleration}") from error

    objective = eager_pass.strategy.objective
    if acceleration == "compiled":
        fuse(objective)
    return CudaGraphTrainingPass(eager_pass, objective, eager_pass.optimizer.param_groups[0]["params"])


@dataclasses.dataclass
class _TimedTraining:
    """Continues training with each call and measures the time."""

    objective: Objective
    optimizer: torch.optim.Optimizer
    device: torch.device
    training_pass: TrainingPass
    steps_done: int = 0

    def run(self, batches: _Batches, steps: int) -> float:
        """The seconds that this many steps took."""
        start = time.perf_counter()
        for _ in train_steps(
            self.objective,
            self.optimizer,
            batches,
            first=self.steps_done + 1,
            last=self.steps_done + steps,
            settings=StepSettings(peak_lr=1e-5, lr_schedule=lambda step: 1.0, clip_norm=1.0, seed=0),
            training_pass=self.training_pass,
            is_logged=lambda step: False,  # like most steps of a run
        ):
            pass
        self.steps_done += steps
        self._synchronize()
        return time.perf_counter() - start

    def time_parts(self, batches: _Batches, steps: int = 5) -> dict[str, float]:
        """The mean seconds of making a batch, of its pass with the gradient's norm, and of the update."""
        times: dict[str, list[float]] = {"batch": [], "pass": []}
        start = 0.0

        def lap(part: str) -> None:
            nonlocal start
            self._synchronize()
            times[part].append(time.perf_counter() - start)
            start = time.perf_counter()

        def timed_batches(step: int) -> Sequence[Canvas]:
            nonlocal start
            self._synchronize()
            start = time.perf_counter()
            canvases = batches(step)
            lap("batch")
            return canvases

        hook = self.optimizer.register_step_pre_hook(lambda *arguments: lap("pass"))
        step_seconds = self.run(timed_batches, steps) / steps
        hook.remove()
        parts = {name: statistics.fmean(values) for name, values in times.items()}
        return parts | {"update": max(0.0, step_seconds - sum(parts.values()))}

    def time_kernels(self, batches: _Batches, steps: int = 5) -> dict[str, float]:
        """The seconds per step that each kernel takes."""
        seconds_by_kernel = profile_kernels(lambda: self.run(batches, steps), self.device)
        return {name: seconds / steps for name, seconds in seconds_by_kernel.items()}

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _random_batches(model: Model, rows: int, length: int, device: torch.device) -> _Batches:
    """Batches of random tokens, assembled on the host like those of a corpus."""
    tokens, lengths = ordinary_tokens(model), np.full(rows, length)
    corpus = np.random.default_rng(0).choice(tokens, size=4 * rows * length)

    def batches(step: int) -> Sequence[Canvas]:
        starts = np.random.default_rng(step).permutation(4 * rows)[:rows] * length
        sources = RaggedRows.from_slices(corpus, starts, lengths)
        return [model.layout.make_canvas(sources, sources, shape=(length, length)).to(device)]

    return batches


def _count_flops(eager_pass: EagerPass, canvas: Canvas) -> float:
    """The floating-point operations of the products of one pass, forward and backward."""
    from torch.utils.flop_counter import FlopCounterMode

    objective = eager_pass.strategy.objective
    objective.train()
    objective.terms_logged = False
    keys = torch.arange(len(canvas.tokens), device=canvas.tokens.device)
    with _without_self_conditioning(objective), FlopCounterMode(display=False) as counter:
        eager_pass(canvas, keys, torch.tensor(0), objective.counts(canvas))
    objective.zero_grad()
    return float(counter.get_total_flops())


@contextmanager
def _without_self_conditioning(objective: Objective) -> Iterator[None]:
    """Context manager: no pass is self-conditioned, since the counter misses operations without gradients."""
    diffusion_objectives = [part for part in objective.modules() if isinstance(part, DiffusionObjective)]
    before = [part.self_conditioning for part in diffusion_objectives]
    for part in diffusion_objectives:
        part.self_conditioning = 0.0
    try:
        yield
    finally:
        for part, rate in zip(diffusion_objectives, before, strict=True):
            part.self_conditioning = rate
