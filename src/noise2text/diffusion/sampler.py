"""Sampling: from noise to text, step by step, with the coefficients that a solver computed.

    z ← constraint(w_z·z + w_z₀·ẑ₀ + w_prev·ẑ₀′ + w_ε·ε),    ẑ₀′ ← ẑ₀,    ẑ₀ ← constraint(denoiser(z, ẑ₀))

A step first moves z to the next noise level, with the estimate before, then asks the denoiser for a new
estimate there. The first step only draws the initial noise: its other coefficients are 0. Classifier-free
guidance and clamping are wrappers of the denoiser; classifier guidance is a `Guide`, which moves z. A
stopping rule (`stopping.py`) may end sampling before the last step.

The denoiser's previous estimate is its self-conditioning input. Every step has its own noise ε, drawn from
the key of its row and the step's number, so that a text does not depend on the batch.

All that `sample` needs is one value, a `ReverseProcess`. `acceleration/cuda_graphs.py` captures `step` as a
CUDA graph and offers a `sample` of the same signature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from noise2text.core.devices import copy_to_device
from noise2text.core.random import gaussian_noise
from noise2text.diffusion.schedules import Schedule
from noise2text.diffusion.solvers import ANCESTRAL, Solver, StepCoefficients, StepColumn, StepTable
from noise2text.diffusion.stopping import StoppingRule
from noise2text.nn.denoiser import Constraint, Denoiser, EncoderOutput, Estimate, NoiseLevel

__all__ = [
    "ComputeStepTable",
    "Guide",
    "OnStep",
    "Proposal",
    "ReverseProcess",
    "Sample",
    "SampledStep",
    "compute_step_table",
    "finish_step",
    "sample",
    "step",
]

NOISE_BUFFER = 1 << 16  # random numbers in one draw, which may serve several steps


@dataclass(frozen=True)
class SampledStep:
    """One step of a batch for a trace, as tensors; `TokenTraceStep` of generation has it as tokens."""

    time: float
    z: Tensor  # (B, L, D)
    estimate: Estimate


OnStep = Callable[[SampledStep], object]
"""Called after every step, for a trace; the next step may overwrite its tensors."""


@dataclass(frozen=True)
class Proposal:
    """A proposed z ~ N(mean, std²) at the next noise level, which a guide may change."""

    z: Tensor  # (B, L, D)
    mean: Tensor  # (B, L, D)
    std: Tensor  # (1 or B, 1 or L, 1)
    level: NoiseLevel

    def select(self, rows: slice) -> Proposal:
        """The proposal for some of the rows."""
        std = self.std if len(self.std) == 1 else self.std[rows]
        return Proposal(self.z[rows], self.mean[rows], std, self.level.select(rows))

    def copy(self) -> Proposal:
        """A copy with its own tensors."""
        level = NoiseLevel(self.level.alpha.clone(), self.level.sigma.clone(), self.level.timestep.clone())
        return Proposal(self.z.clone(), self.mean.clone(), self.std.clone(), level)


Guide = Callable[[Proposal], Tensor]
"""From a proposed z to the z that sampling continues with (classifier guidance)."""


def compute_step_table(process: ReverseProcess) -> StepTable:
    """The steps through the noise levels of the process's schedule at its times.

    The network's time embedding is computed in one pass for all steps, unless each position has its own time.
    """
    schedule_device = next((buffer.device for buffer in process.schedule.buffers()), "cpu")
    length = process.constraint.embeddings.shape[1]
    levels: NoiseLevel = process.schedule(process.times.to(schedule_device), length)  # one row per step
    table = copy_to_device(process.solver.steps(levels), process.noise_keys.device)
    time_embedder = process.denoiser.time_embedder() if table.shape[2] == 1 else None
    timesteps = table[:, StepColumn.TIMESTEP]
    return StepTable(table[:, None], None if time_embedder is None else time_embedder(timesteps))


@dataclass(frozen=True)
class ReverseProcess:
    """The process that is sampled from, p(z₀ | source, given positions): from pure noise to a clean estimate.

    Fields:
        denoiser, schedule: the model.
        encoded: the encoded sources, one row per sentence.
        constraint: the given positions of each of the B rows.
        noise_keys: (B,), the keys of the rows' noise.
        times: (K,), from 1 downwards.
        solver: how a step is computed.
        guide: classifier guidance, if wanted.
        stopping: the rule that may end sampling early; it serves one run.
    """

    denoiser: Denoiser
    schedule: Schedule
    encoded: EncoderOutput
    constraint: Constraint
    noise_keys: Tensor
    times: Tensor
    solver: Solver = ANCESTRAL
    guide: Guide | None = None
    stopping: StoppingRule | None = None

    def build_step_table(self, compute: ComputeStepTable = compute_step_table) -> StepTable:
        """The steps of all rows; another `compute` may look up what `compute_step_table` returned before."""
        return compute(self)


ComputeStepTable = Callable[[ReverseProcess], StepTable]
"""A function with the signature of `compute_step_table`."""


def sample(process: ReverseProcess, on_step: OnStep | None = None) -> Estimate:
    """The clean estimate after the last step of the process, which starts from pure noise."""
    denoiser, constraint, table = process.denoiser, process.constraint, process.build_step_table()
    z = z0 = previous = torch.zeros_like(constraint.embeddings, dtype=torch.float)  # (B, L, D)
    for (number, noise), time in zip(_step_noise(process), process.times.tolist(), strict=True):
        coefficients = table.row(number)
        proposal = step(z, z0, previous, coefficients, noise)
        z = constraint.apply(proposal.z if process.guide is None else process.guide(proposal))
        estimate = denoiser(z, coefficients.level, process.encoded, constraint, z0)
        z0, previous = constraint.apply(estimate.z0), z0
        sampled = SampledStep(time, z, Estimate(z0, estimate.hidden))
        estimate, is_over = finish_step(process, sampled, on_step)
        if is_over:
            break
    return estimate


Sample = Callable[[ReverseProcess, OnStep | None], Estimate]
"""A function with the signature of `sample`."""


def step(z: Tensor, z0: Tensor, previous: Tensor, coefficients: StepCoefficients, noise: Tensor) -> Proposal:
    """Where a step from z with its last two estimates and this noise leads to, before any guidance."""
    mean = torch.addcmul(coefficients.z_weight * z, coefficients.z0_weight, z0)
    mean = mean.addcmul(coefficients.previous_weight, previous)
    proposed = torch.addcmul(mean, coefficients.noise_weight, noise)
    return Proposal(proposed, mean, coefficients.noise_weight, coefficients.level)


def finish_step(
    process: ReverseProcess, sampled: SampledStep, on_step: OnStep | None
) -> tuple[Estimate, bool]:
    """The estimate of a step after the stopping rule, and whether sampling is over; calls `on_step`."""
    stopping = process.stopping
    if stopping is not None:
        sampled = replace(sampled, estimate=stopping.keep_finished(sampled.estimate))
    if on_step is not None:
        on_step(sampled)
    return sampled.estimate, stopping is not None and stopping.is_over()


def _step_noise(process: ReverseProcess) -> Iterator[tuple[Tensor, Tensor]]:
    """The number (1,) and the noise (B, L, D) of every step, several steps in one draw if they are small."""
    keys, embeddings = process.noise_keys, process.constraint.embeddings
    steps_per_draw = max(1, NOISE_BUFFER // max(1, embeddings.numel()))
    for numbers in torch.arange(len(process.times), device=keys.device).split(steps_per_draw):
        noises = gaussian_noise(keys, numbers[:, None], *embeddings.shape[1:])  # (K, B, L, D)
        yield from zip(numbers.split(1), noises, strict=True)
