"""Quality during sampling: the estimate ẑ₀ at each step, and the estimate from pure noise for each timestep.

During sampling (Difformer, figure 4; DiffuSeq, figure 5), the estimate at every step is rounded and scored
as if sampling ended there; with several noises, diversity is measured as well. BLEU that falls towards the
end is the sign of a degenerated model; diversity that falls early, of a model that decides early on a text.

From pure noise (Difformer, section 3.2 and figure 2a), the network gets z as at the start of sampling, but
with another timestep t:

    ẑ₀ = f(z_T, t, x),  z_T ~ N(0, I),    BLEU of its rounding, for each t

So the noise is always the same, and only the timestep changes. Where BLEU is low, the network has learned to
read the tokens from the canvas and to ignore the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from noise2text.analysis.finding import Finding, ResultRow
from noise2text.analysis.generation import (
    GenerationOptions,
    analyze_models,
    draw_samples,
    plot_by_model,
    require_diffusion,
    score_samples,
    signature,
)
from noise2text.analysis.inputs import Inputs
from noise2text.analysis.traces import evenly_spaced
from noise2text.core.config import option
from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair
from noise2text.diffusion.schedules import Schedule
from noise2text.diffusion.solvers import strided_times
from noise2text.models import DiffusionModel, GenerationOutput, Model
from noise2text.nn.denoiser import Constraint, Denoiser, DenoiserWrapper, EncoderOutput, Estimate, NoiseLevel

__all__ = [
    "FromNoiseOptions",
    "SamplingOptions",
    "analyze_from_noise",
    "analyze_sampling",
    "assume_timestep",
    "from_pure_noise",
    "sampling_finding",
    "score_sampling_steps",
]


@dataclass(frozen=True)
class SamplingOptions(GenerationOptions):
    """The number of noises per sentence."""

    noises: int = option(
        3, "samples per sentence, each with its own seed; with 1 there is no diversity", minimum=1
    )


@dataclass(frozen=True)
class FromNoiseOptions(GenerationOptions):
    """The timesteps that the network is given."""

    points: int = option(20, "number of timesteps, from 1/T to 1", minimum=1)


def analyze_sampling(inputs: Inputs, options: SamplingOptions) -> list[Finding]:
    """The analysis `sampling`."""
    return analyze_models(score_sampling_steps, inputs, options, noises=options.noises)


def analyze_from_noise(inputs: Inputs, options: FromNoiseOptions) -> list[Finding]:
    """The analysis `from-noise`."""
    return analyze_models(from_pure_noise, inputs, options, points=options.points)


def score_sampling_steps(
    models: Mapping[str, Model],
    pairs: Sequence[Pair],
    *,
    noises: int = 3,
    seed: int = 0,
    batch: int = 64,
    settings: Mapping[str, Any] | None = None,
) -> Finding:
    """BLEU, div-4 and self-BLEU of the estimates at each sampling step of each model."""
    settings = settings or {}
    outputs = {
        name: draw_samples(model, pairs, count=noises, seed=seed, batch=batch, trace=True, settings=settings)
        for name, model in models.items()
    }
    return sampling_finding(
        outputs, pairs, signature=signature(models, pairs, settings, seed=seed, noises=noises)
    )


def sampling_finding(
    outputs: Mapping[str, Sequence[GenerationOutput]],
    pairs: Sequence[Pair],
    *,
    signature: str,
    points: int | None = None,
) -> Finding:
    """The finding of `score_sampling_steps` for samples drawn before with traces; at most `points` steps."""
    rows: list[ResultRow] = []
    for name, samples in outputs.items():
        times = _times(samples, name)
        for step, time in evenly_spaced(list(enumerate(times, start=1)), points or len(times)):
            columns: ResultRow = {"model": name, "step": step, "done": 100 * step / len(times), "time": time}
            texts = [_texts_at(output, step) for output in samples]
            rows.append({**columns, **score_samples(texts, pairs)})
    shown = ("bleu", "div_4", "self_bleu")
    return Finding(
        name="sampling",
        title="Quality and diversity of the estimate at each step",
        paper_figure="Difformer, figure 4; DiffuSeq, figure 5",
        rows=rows,
        signature=signature,
        draw=partial(plot_by_model, rows=rows, x="done", label="steps done (%)", columns=shown),
    )


def _times(outputs: Sequence[GenerationOutput], name: str) -> list[float]:
    """The times of the longest trace; shorter ones have ended, and keep their text."""
    longest = max((trace for output in outputs for trace in output.traces), key=len)
    if not longest:
        raise Problem(f"{name} generates without steps: leave it out.")
    return [step.time for step in longest]


def _texts_at(output: GenerationOutput, step: int) -> list[str]:
    """Each source's text after this many steps, or its final text if it took fewer."""
    traced = zip(output.traces, output.texts, strict=True)
    return [trace[step - 1].text if step <= len(trace) else text for trace, text in traced]


def from_pure_noise(
    models: Mapping[str, Model],
    pairs: Sequence[Pair],
    *,
    points: int = 20,
    seed: int = 0,
    batch: int = 64,
    settings: Mapping[str, Any] | None = None,
) -> Finding:
    """BLEU of each network's estimate from pure noise, for `points` timesteps from 1/T to 1."""
    one_step = dict(settings or {}) | {"steps": 1, "stop_early": 0}
    rows: list[ResultRow] = []
    for name, loaded in models.items():
        model = require_diffusion(loaded, name, wanted="The estimate from pure noise")
        # The likelihood of weighted MBR comes from the same network, which would get the wrong timestep, too.
        uses_likelihood = one_step.get("select", model.generation_config.select) == "weighted-mbr"
        changes = one_step | ({"select": "mbr"} if uses_likelihood else {})
        for time in sorted(strided_times(points, num_timesteps=model.schedule.num_timesteps).tolist()):
            with assume_timestep(model, time):
                [outputs] = draw_samples(model, pairs, seed=seed, batch=batch, settings=changes)
            rows.append({"model": name, "time": time, "bleu": score_samples([outputs.texts], pairs)["bleu"]})
    label = "the timestep t given to the network"
    return Finding(
        name="from-noise",
        title="Quality of the estimate from pure noise at each timestep",
        paper_figure="Difformer, figure 2a",
        rows=rows,
        signature=signature(models, pairs, one_step, seed=seed),
        draw=partial(plot_by_model, rows=rows, x="time", label=label, columns=["bleu"]),
    )


class FixedTimestepDenoiser(DenoiserWrapper):
    """A denoiser that treats every canvas as one at time t."""

    def __init__(self, denoiser: Denoiser, schedule: Schedule, time: float) -> None:
        super().__init__(denoiser)
        self.schedule, self.time = schedule, time

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        scheduled: NoiseLevel = self.schedule(
            torch.tensor([self.time], dtype=torch.float64, device=z.device), z.shape[1]
        )
        assumed = NoiseLevel(
            scheduled.alpha.to(level.alpha),
            scheduled.sigma.to(level.sigma),
            scheduled.timestep.to(level.timestep),
        )
        estimate: Estimate = self.denoiser(z, assumed, encoded, constraint, self_condition)
        return estimate


@contextmanager
def assume_timestep(model: DiffusionModel, time: float) -> Iterator[None]:
    """Context manager: the model's network treats every canvas as one at this time, without CUDA graphs."""
    denoiser, schedule, use_cuda_graphs = model.denoiser, model.schedule, model.use_cuda_graphs
    model.denoiser = FixedTimestepDenoiser(denoiser.for_sampling(schedule), schedule, time)
    model.use_cuda_graphs = False
    try:
        yield
    finally:
        model.denoiser, model.use_cuda_graphs = denoiser, use_cuda_graphs
