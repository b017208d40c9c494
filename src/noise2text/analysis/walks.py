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

from noise2text.analysis.finding import Finding, Row
from noise2text.analysis.inputs import Inputs
from noise2text.analysis.samples import (
    GenerationOptions,
    as_diffusion,
    draw_samples,
    judge,
    load_all,
    plot_by_model,
    signature,
)
from noise2text.analysis.traces import evenly
from noise2text.core.config import option, require_least
from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair
from noise2text.diffusion.sampler import strided
from noise2text.models import Diffusion, Generated, System
from noise2text.nn.denoiser import Denoiser, Estimate, Held, Level, Memory, Wrapped

__all__ = [
    "NoiseOptions",
    "WalkOptions",
    "along_the_walk",
    "from_noise",
    "from_pure_noise",
    "told",
    "walk",
    "walk_of",
]


@dataclass(frozen=True)
class WalkOptions(GenerationOptions):
    """How often the walk is walked."""

    noises: int = option(3, "walks a sentence, each with its own seed; 1 has no diversity")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, 1, "noises")


@dataclass(frozen=True)
class NoiseOptions(GenerationOptions):
    """Which times the network is told."""

    points: int = option(20, "how many times from 1/T to 1 the network is told")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, 1, "points")


def walk(inputs: Inputs) -> list[Finding]:
    """The analysis `walk`."""
    chosen = inputs.chosen(WalkOptions())
    return [
        along_the_walk(
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
    chosen = inputs.chosen(NoiseOptions())
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


def along_the_walk(
    systems: Mapping[str, System],
    pairs: Sequence[Pair],
    *,
    noises: int = 3,
    seed: int = 0,
    batch: int = 64,
    settings: Mapping[str, Any] | None = None,
) -> Finding:
    """BLEU, div-4 and self-BLEU of the estimates at each step of each system's own decoding."""
    settings = settings or {}
    made = {
        name: draw_samples(system, pairs, count=noises, seed=seed, batch=batch, trace=True, settings=settings)
        for name, system in systems.items()
    }
    return walk_of(made, pairs, signature=signature(systems, pairs, settings, seed=seed, noises=noises))


def walk_of(
    made: Mapping[str, Sequence[Generated]],
    pairs: Sequence[Pair],
    *,
    signature: str,
    points: int | None = None,
) -> Finding:
    """The same of samples that were drawn with their traces, by system; of `points` of the steps at most."""
    rows: list[Row] = []
    for name, samples in made.items():
        times = _times(samples, name)
        for step, time in evenly(list(enumerate(times, start=1)), points or len(times)):
            where: Row = {"model": name, "step": step, "done": 100 * step / len(times), "time": time}
            rows.append({**where, **judge([_at(one, step) for one in samples], pairs)})

    def draw(figure: Any) -> None:
        columns = ("bleu", "div_4", "self_bleu")
        plot_by_model(figure, rows, x="done", label="steps done (%)", columns=columns)

    return Finding(
        name="walk",
        title="Quality and diversity of the estimate at each step",
        after="Difformer, figure 4; DiffuSeq, figure 5",
        rows=rows,
        signature=signature,
        draw=draw,
    )


def _times(made: Sequence[Generated], name: str) -> list[float]:
    """The times of the longest way; others ended before, and stay where they are."""
    longest = max((trace for one in made for trace in one.traces), key=len)
    if not longest:
        raise Problem(f"A walk has steps, but {name} writes without any: leave it out.")
    return [stop.time for stop in longest]


def _at(made: Generated, step: int) -> list[str]:
    """Each source's text after so many steps, its answer where it took no more."""
    ways = zip(made.traces, made.texts, strict=True)
    return [trace[step - 1].text if step <= len(trace) else text for trace, text in ways]


def from_pure_noise(
    systems: Mapping[str, System],
    pairs: Sequence[Pair],
    *,
    points: int = 20,
    seed: int = 0,
    batch: int = 64,
    settings: Mapping[str, Any] | None = None,
) -> Finding:
    """BLEU of each network's one estimate from pure noise, told `points` times from 1/T to 1."""
    once = dict(settings or {}) | {"steps": 1, "stop_early": 0}
    rows: list[Row] = []
    for name, system in systems.items():
        model = as_diffusion(system, name, wanted="The estimate from pure noise")
        weighed = once.get("select", model.how.select) == "weighed"  # the judge would be told the time, too
        how = once | ({"select": "mbr"} if weighed else {})
        for time in sorted(strided(points, resolution=model.schedule.steps).tolist()):
            with told(model, time):
                [made] = draw_samples(model, pairs, seed=seed, batch=batch, settings=how)
            rows.append({"model": name, "time": time, "bleu": judge([made.texts], pairs)["bleu"]})

    def draw(figure: Any) -> None:
        plot_by_model(figure, rows, x="time", label="the time t that the network is told", columns=["bleu"])

    return Finding(
        name="from-noise",
        title="Quality of the estimate from pure noise at each time",
        after="Difformer, figure 2a",
        rows=rows,
        signature=signature(systems, pairs, once, seed=seed),
        draw=draw,
    )


class Told(Wrapped):
    """A denoiser that takes whatever it is given for a canvas of the time t."""

    def __init__(self, denoiser: Denoiser, schedule: nn.Module, time: float) -> None:
        super().__init__(denoiser)
        self.schedule, self.time = schedule, time

    def forward(self, z: Tensor, level: Level, memory: Memory, held: Held, guess: Tensor | None) -> Estimate:
        now: Level = self.schedule(
            torch.tensor([self.time], dtype=torch.float64, device=z.device), z.shape[1]
        )
        assumed = Level(now.alpha.to(level.alpha), now.sigma.to(level.sigma), now.clock.to(level.clock))
        estimate: Estimate = self.denoiser(z, assumed, memory, held, guess)
        return estimate


@contextmanager
def told(system: Diffusion, time: float) -> Iterator[None]:
    """Within, the system's network takes every canvas for one of this time; nothing of it is recorded."""
    denoiser, captures = system.denoiser, system.captures
    system.denoiser, system.captures = Told(denoiser, system.schedule, time), None
    try:
        yield
    finally:
        system.denoiser, system.captures = denoiser, captures
