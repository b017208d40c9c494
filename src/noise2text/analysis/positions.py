"""Where denoising is hard: the loss by time and position, and the learned schedule (SeqDiffuSeq, figure 2).

The loss is the objective's own, term by term as in training, but with the time of our choice and no weight
for it:

    L(t, i) = mean over pairs of the loss of the target's i-th token at time t

All times see the same noise and the same coins of self-conditioning. An adaptive schedule has a curve ᾱⁱ(t)
for each position; beside it stands the sqrt schedule that it began as. A schedule without positions is one
curve.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from noise2text.analysis.finding import Finding, Row, plot_lines
from noise2text.analysis.inputs import Inputs
from noise2text.analysis.samples import as_diffusion, references_of
from noise2text.core.config import option, require_least
from noise2text.core.errors import Problem
from noise2text.core.random import key, uniform
from noise2text.data.corpus import Pair
from noise2text.data.layouts.canvas import Canvas
from noise2text.data.layouts.joint_aligned import Fixed
from noise2text.data.ragged import Rows
from noise2text.diffusion.schedules import Sqrt
from noise2text.models import Diffusion
from noise2text.models.folder import load, settings_of
from noise2text.training.objective import DiffusionObjective, Objective
from noise2text.training.source_dropout import Dropping

__all__ = ["PositionOptions", "learned_schedule", "losses_by_position", "position_losses", "positions"]

TERMS = ("difficulty", "vlb", "nll")
"""What is looked at, the first that an objective has: what a schedule adapts to, else the squared error."""
SHOWN = 6  # positions in a picture


@dataclass(frozen=True)
class PositionOptions:
    """How finely time is looked at, and how many pairs are."""

    points: int = option(20, "how many times, evenly spaced up to 1")
    sentences: int = option(200, "how many of the pairs, from the first, are noised")
    batch: int = option(64, "pairs noised at once")
    term: str = option("", "the term of the objective; the one that it adapts to, else vlb, without it")

    def __post_init__(self) -> None:
        require_least(self, 1, "points", "sentences", "batch")


def positions(inputs: Inputs) -> list[Finding]:
    """The analysis `positions`: of each model its losses and its schedule."""
    chosen = inputs.chosen(PositionOptions())
    pairs, found = inputs.pairs[: chosen.sentences], []
    for name, folder in inputs.named().items():
        recipe, settings = settings_of(folder)
        model = as_diffusion(
            load(folder, device=inputs.device, precision="float32"), name, wanted="The loss at each time"
        )
        objective = recipe.objective(settings, model).to(model.device)
        losses = losses_by_position(
            model,
            objective,
            pairs,
            name=name,
            points=chosen.points,
            seed=inputs.seed,
            batch=chosen.batch,
            term=chosen.term,
        )
        found += [losses, learned_schedule(model, name=name, points=chosen.points)]
    return found


def losses_by_position(
    system: Diffusion,
    objective: Objective,
    pairs: Sequence[Pair],
    *,
    name: str = "model",
    points: int = 20,
    seed: int = 0,
    batch: int = 64,
    term: str = "",
) -> Finding:
    """The mean loss of each position of the target at each time."""
    references_of(pairs)
    term = term or next(each for each in TERMS if each in objective.terms)
    if term not in objective.terms:
        raise Problem(f"The objective has no term {term!r}; it has {', '.join(objective.terms)}.")
    times = [(point + 1) / points for point in range(points)]
    sums, counts = position_losses(system, objective, pairs, times=times, seed=seed, batch=batch, term=term)
    means = sums / counts.clamp(min=1)  # (times, positions)
    rows: list[Row] = [
        {
            "time": time,
            "position": place,
            "loss": means[row, place].item(),
            "counted": int(counts[row, place]),
        }
        for row, time in enumerate(times)
        for place in range(means.shape[1])
        if counts[row, place]
    ]

    def draw(figure: Any) -> None:
        seen = counts.any(0).nonzero().flatten().tolist()
        some = [seen[number] for number in _some(len(seen))]
        lines = {f"position {place}": (times, means[:, place].tolist()) for place in some}
        plot_lines(figure.subplots(), lines, x="time t", y=f"loss ({term})")

    return Finding(
        name=f"losses-{_file(name)}",
        title=f"The loss of {name} at each time and position",
        after="SeqDiffuSeq, figure 2, middle and right",
        rows=rows,
        signature=f"term:{term}|sentences:{len(pairs)}|seed:{seed}",
        draw=draw,
    )


@torch.no_grad()
def position_losses(
    system: Diffusion,
    objective: Objective,
    pairs: Sequence[Pair],
    *,
    times: Sequence[float],
    seed: int = 0,
    batch: int = 64,
    term: str = "vlb",
) -> tuple[Tensor, Tensor]:
    """The sums and the counts of a term at each time and position of the target, both (times, positions).

    Positions are counted from the target's start to its end; what fills a canvas up after it is left out.
    """
    inner = within(objective).eval()
    room = system.max_target + 1
    sums, counts = torch.zeros(2, len(times), room, dtype=torch.float64)
    for number, (canvas, place) in enumerate(_canvases(system, pairs, seed=seed, batch=batch)):
        rows = torch.arange(number * batch, number * batch + len(place), device=place.device)
        drawn = inner.draw(canvas, key(seed, _NOISE, rows), key(seed, _COIN, number))
        for row, time in enumerate(times):
            t = torch.full_like(drawn.t, max(1, round(time * inner.times.steps)) / inner.times.steps)
            tally = inner(canvas, replace(drawn, t=t, weight=torch.ones_like(drawn.weight)))[term]
            if tally.value.shape != place.shape:
                raise Problem(f"The term {term!r} has one value a sentence: choose one of positions.")
            counted = tally.mask & (place >= 0)
            where = place[counted].cpu()
            sums[row].index_add_(0, where, tally.value[counted].double().cpu())
            counts[row].index_add_(0, where, torch.ones(len(where), dtype=torch.float64))
    used = 1 + max(counts.any(0).nonzero().flatten().tolist(), default=-1)
    return sums[:, :used], counts[:, :used]


def within(objective: Objective) -> DiffusionObjective:
    """The diffusion objective itself, without what drops sources around it."""
    while isinstance(objective, Dropping):
        objective = objective.objective
    if not isinstance(objective, DiffusionObjective):
        raise Problem("The loss at each time is that of a diffusion model, and this objective has no times.")
    return objective


def _canvases(
    system: Diffusion, pairs: Sequence[Pair], *, seed: int, batch: int
) -> Iterator[tuple[Canvas, Tensor]]:
    """Canvases of so many pairs, and the number of each place in its target (B, L); −1 outside of it."""
    layout, ended = system.layout, int(bool(system.layout.ends))
    sources = system.tokenizer.encode([pair.src for pair in pairs])
    targets = system.tokenizer.encode([pair.trg for pair in pairs])
    for start in range(0, len(pairs), batch):
        chosen = slice(start, start + batch)
        source = Rows.of([row[: system.max_source] for row in sources[chosen]])
        target = Rows.of([row[: system.max_target] for row in targets[chosen]])
        lengths = torch.from_numpy(target.lengths)[:, None]
        canvas = layout.canvas(source, target)
        place = torch.arange(canvas.tokens.shape[1]) - layout.text(canvas).int().argmax(1, keepdim=True)
        place = torch.where((place >= 0) & (place < lengths + ended), place, -1)
        u = uniform(key(seed, _LAYOUT, torch.arange(start, start + len(place))))
        yield layout.vary(canvas, u).to(system.device), place.to(system.device)


_NOISE, _COIN, _LAYOUT = 1, 2, 3  # what a key is for


def learned_schedule(system: Diffusion, *, name: str = "model", points: int = 20) -> Finding:
    """ᾱ of each position at each time, and sqrt's; a schedule that knows no positions has one, 0."""
    times = torch.arange(points + 1, dtype=torch.float64) / points
    width = getattr(system.layout, "width", system.max_target)
    learned = system.schedule(times.to(system.device), width).alpha.square()[..., 0].cpu()  # (times, L)
    if isinstance(system.layout, Fixed) and learned.shape[1] > 1:
        learned = learned[:, system.layout.first :]  # positions are counted from the target's start
    sqrt = Sqrt(system.schedule.steps).alpha_bar(times)
    rows: list[Row] = [
        {"time": time, "position": place, "alpha_bar": learned[row, place].item(), "sqrt": sqrt[row].item()}
        for row, time in enumerate(times.tolist())
        for place in range(learned.shape[1])
    ]

    def draw(figure: Any) -> None:
        lines = {"sqrt": (times.tolist(), sqrt.tolist())} | {
            f"position {place}": (times.tolist(), learned[:, place].tolist())
            for place in _some(learned.shape[1])
        }
        plot_lines(figure.subplots(), lines, x="time t", y="signal ᾱ")

    return Finding(
        name=f"schedule-{_file(name)}",
        title=f"The schedule of {name} at each position",
        after="SeqDiffuSeq, figure 2, left",
        rows=rows,
        signature=f"schedule:{type(system.schedule).__name__.lower()}|steps:{system.schedule.steps}",
        draw=draw,
    )


def _some(count: int) -> list[int]:
    """A few places, evenly spaced from the first to the last."""
    few = min(count, SHOWN)
    return sorted({round(number * (count - 1) / max(1, few - 1)) for number in range(few)})


def _file(name: str) -> str:
    """The name without what a file's name must not have."""
    return name.replace("/", "-").strip("-")
