"""How a text comes about: the estimate ẑ₀ at each step, and what the network makes of pure noise at each t.

Along the walk (Difformer, figure 4; DiffuSeq, figure 5), the estimate of every step is rounded and scored
as if the walk ended there; over several noises it is also compared with itself. BLEU that falls towards the
end is the mark of a degenerated model; diversity that falls early, of one that soon settles on a text.

From pure noise (Difformer, section 3.2 and figure 2a), the network is given z as at the start of a walk,
but is told the time t:

    ẑ₀ = f(z_T, t, x),  z_T ~ N(0, I),    BLEU of its rounding, for each t

So the noise is the same everywhere, and only what the network makes of it changes. Where BLEU is low, the
network has learned to read the tokens off the canvas and leaves the source alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from noise2text.analysis.finding import Finding, ResultRow
from noise2text.analysis.generation import (
    GenerationOptions,
    draw_samples,
    load_all,
    plot_by_model,
    require_diffusion,
    score_samples,
    signature,
)
from noise2text.analysis.inputs import Inputs
from noise2text.analysis.traces import evenly_spaced
from noise2text.core.config import option, require_at_least
from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair
from noise2text.diffusion.solvers import strided_times
from noise2text.models import DiffusionModel, GenerationOutput, Model
from noise2text.nn.denoiser import Constraint, Denoiser, DenoiserWrapper, EncoderOutput, Estimate, NoiseLevel

__all__ = [
    "FromNoiseOptions",
    "SamplingOptions",
    "analyse_sampling",
    "assume_timestep",
    "from_noise",
    "from_pure_noise",
    "sampling_finding",
    "score_sampling_steps",
]


@dataclass(frozen=True)
class SamplingOptions(GenerationOptions):
    """How often the walk is walked."""

    noises: int = option(3, "walks a sentence, each with its own seed; 1 has no diversity")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "noises")


@dataclass(frozen=True)
class FromNoiseOptions(GenerationOptions):
    """Which times the network is told."""

    points: int = option(20, "how many times from 1/T to 1 the network is told")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "points")


def analyse_sampling(inputs: Inputs) -> list[Finding]:
    """The analysis `walk`."""
    chosen = inputs.chosen(SamplingOptions())
    return [
        score_sampling_steps(
            load_all(inputs),
            inputs.pairs[: chosen.sentences],
            noises=chosen.noises,
            seed=inputs.seed,
            batch=chosen.batch,
            settings=chosen.settings(),
        )
    ]


def from_noise(inputs: Inputs) -> list[Finding]:
    """The analysis `from-noise`."""
    chosen = inputs.chosen(FromNoiseOptions())
    return [
        from_pure_noise(
            load_all(inputs),
            inputs.pairs[: chosen.sentences],
            points=chosen.points,
            seed=inputs.seed,
            batch=chosen.batch,
            settings=chosen.settings(),
        )
    ]


def score_sampling_steps(
    models: Mapping[str, Model],
    pairs: Sequence[Pair],
    *,
    noises: int = 3,
    seed: int = 0,
    batch: int = 64,
    settings: Mapping[str, Any] | None = None,
) -> Finding:
    """BLEU, div-4 and self-BLEU of the estimates at each step of each system's own decoding."""
    settings = settings or {}
    outputs = {
        name: draw_samples(system, pairs, count=noises, seed=seed, batch=batch, trace=True, settings=settings)
        for name, system in models.items()
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
    """The same of samples that were drawn with their traces, by system; of `points` of the steps at most."""
    rows: list[ResultRow] = []
    for name, samples in outputs.items():
        times = _times(samples, name)
        for step, time in evenly_spaced(list(enumerate(times, start=1)), points or len(times)):
            where: ResultRow = {"model": name, "step": step, "done": 100 * step / len(times), "time": time}
            rows.append({**where, **score_samples([_at(one, step) for one in samples], pairs)})

    def draw(figure: Any) -> None:
        columns = ("bleu", "div_4", "self_bleu")
        plot_by_model(figure, rows, x="done", label="steps done (%)", columns=columns)

    return Finding(
        name="sampling",
        title="Quality and diversity of the estimate at each step",
        paper_figure="Difformer, figure 4; DiffuSeq, figure 5",
        rows=rows,
        signature=signature,
        draw=draw,
    )


def _times(outputs: Sequence[GenerationOutput], name: str) -> list[float]:
    """The times of the longest way; others ended before, and stay where they are."""
    longest = max((trace for one in outputs for trace in one.traces), key=len)
    if not longest:
        raise Problem(f"A walk has steps, but {name} writes without any: leave it out.")
    return [stop.time for stop in longest]


def _at(outputs: GenerationOutput, step: int) -> list[str]:
    """Each source's text after so many steps, its answer where it took no more."""
    answers = zip(outputs.traces, outputs.texts, strict=True)
    return [trace[step - 1].text if step <= len(trace) else text for trace, text in answers]


def from_pure_noise(
    models: Mapping[str, Model],
    pairs: Sequence[Pair],
    *,
    points: int = 20,
    seed: int = 0,
    batch: int = 64,
    settings: Mapping[str, Any] | None = None,
) -> Finding:
    """BLEU of each network's one estimate from pure noise, told `points` times from 1/T to 1."""
    one_step = dict(settings or {}) | {"steps": 1, "stop_early": 0}
    rows: list[ResultRow] = []
    for name, system in models.items():
        model = require_diffusion(system, name, wanted="The estimate from pure noise")
        uses_likelihood = (
            one_step.get("select", model.generation_config.select) == "weighted-mbr"
        )  # the judge would be told the time, too
        changes = one_step | ({"select": "mbr"} if uses_likelihood else {})
        for time in sorted(strided_times(points, num_timesteps=model.schedule.steps).tolist()):
            with assume_timestep(model, time):
                [outputs] = draw_samples(model, pairs, seed=seed, batch=batch, settings=changes)
            rows.append({"model": name, "time": time, "bleu": score_samples([outputs.texts], pairs)["bleu"]})

    def draw(figure: Any) -> None:
        plot_by_model(figure, rows, x="time", label="the time t that the network is told", columns=["bleu"])

    return Finding(
        name="from-noise",
        title="Quality of the estimate from pure noise at each time",
        paper_figure="Difformer, figure 2a",
        rows=rows,
        signature=signature(models, pairs, one_step, seed=seed),
        draw=draw,
    )


class FixedTimestepDenoiser(DenoiserWrapper):
    """A denoiser that takes whatever it is given for a canvas of the time t."""

    def __init__(self, denoiser: Denoiser, schedule: nn.Module, time: float) -> None:
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
        now: NoiseLevel = self.schedule(
            torch.tensor([self.time], dtype=torch.float64, device=z.device), z.shape[1]
        )
        assumed = NoiseLevel(
            now.alpha.to(level.alpha), now.sigma.to(level.sigma), now.timestep.to(level.timestep)
        )
        estimate: Estimate = self.denoiser(z, assumed, encoded, constraint, self_condition)
        return estimate


@contextmanager
def assume_timestep(system: DiffusionModel, time: float) -> Iterator[None]:
    """Within, the system's network takes every canvas for one of this time; nothing of it is recorded."""
    denoiser, recorded = system.denoiser, system.use_cuda_graphs
    system.denoiser, system.use_cuda_graphs = FixedTimestepDenoiser(denoiser, system.schedule, time), False
    try:
        yield
    finally:
        system.denoiser, system.use_cuda_graphs = denoiser, recorded
