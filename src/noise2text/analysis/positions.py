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

from noise2text.analysis.finding import Finding, ResultRow, plot_lines
from noise2text.analysis.generation import collect_references, require_diffusion
from noise2text.analysis.inputs import Inputs
from noise2text.core.config import option, require_at_least
from noise2text.core.errors import Problem
from noise2text.core.random import make_key, uniform
from noise2text.data.corpus import Pair
from noise2text.data.layouts.aligned_joint import AlignedJointLayout
from noise2text.data.layouts.base import Canvas
from noise2text.data.ragged import RaggedRows
from noise2text.diffusion.schedules import SqrtSchedule
from noise2text.models import DiffusionModel
from noise2text.models.folder import load, load_config
from noise2text.training.objective import DiffusionObjective, Objective
from noise2text.training.source_dropout import SourceDropout

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
        require_at_least(self, 1, "points", "sentences", "batch")


def positions(inputs: Inputs) -> list[Finding]:
    """The analysis `positions`: of each model its losses and its schedule."""
    chosen = inputs.chosen(PositionOptions())
    pairs, found = inputs.pairs[: chosen.sentences], []
    for name, folder in inputs.folders_by_name().items():
        recipe, settings = load_config(folder)
        model = require_diffusion(
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
    system: DiffusionModel,
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
    collect_references(pairs)
    term = term or next(each for each in TERMS if each in objective.terms)
    if term not in objective.terms:
        raise Problem(f"The objective has no term {term!r}; it has {', '.join(objective.terms)}.")
    times = [(point + 1) / points for point in range(points)]
    sums, counts = position_losses(system, objective, pairs, times=times, seed=seed, batch=batch, term=term)
    means = sums / counts.clamp(min=1)  # (times, positions)
    rows: list[ResultRow] = [
        {
            "time": time,
            "position": position,
            "loss": means[row, position].item(),
            "counted": int(counts[row, position]),
        }
        for row, time in enumerate(times)
        for position in range(means.shape[1])
        if counts[row, position]
    ]

    def draw(figure: Any) -> None:
        seen = counts.any(0).nonzero().flatten().tolist()
        some = [seen[number] for number in _evenly_spaced_indices(len(seen))]
        lines = {f"position {position}": (times, means[:, position].tolist()) for position in some}
        plot_lines(figure.subplots(), lines, x="time t", y=f"loss ({term})")

    return Finding(
        name=f"losses-{_file(name)}",
        title=f"The loss of {name} at each time and position",
        paper_figure="SeqDiffuSeq, figure 2, middle and right",
        rows=rows,
        signature=f"term:{term}|sentences:{len(pairs)}|seed:{seed}",
        draw=draw,
    )


@torch.no_grad()
def position_losses(
    system: DiffusionModel,
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
    inner = unwrap_objective(objective).eval()
    max_positions = system.max_target + 1
    sums, counts = torch.zeros(2, len(times), max_positions, dtype=torch.float64)
    for number, (canvas, position) in enumerate(_canvases(system, pairs, seed=seed, batch=batch)):
        rows = torch.arange(number * batch, number * batch + len(position), device=position.device)
        draws = inner.draw(canvas, make_key(seed, _NOISE, rows), make_key(seed, _STEP_FLAGS, number))
        for row, time in enumerate(times):
            t = torch.full_like(
                draws.t, max(1, round(time * inner.time_sampler.steps)) / inner.time_sampler.steps
            )
            token_loss = inner(canvas, replace(draws, t=t, weight=torch.ones_like(draws.weight)))[term]
            if token_loss.values.shape != position.shape:
                raise Problem(f"The term {term!r} has one value a sentence: choose one of positions.")
            counted = token_loss.mask & (position >= 0)
            where = position[counted].cpu()
            sums[row].index_add_(0, where, token_loss.values[counted].double().cpu())
            counts[row].index_add_(0, where, torch.ones(len(where), dtype=torch.float64))
    used = 1 + max(counts.any(0).nonzero().flatten().tolist(), default=-1)
    return sums[:, :used], counts[:, :used]


def unwrap_objective(objective: Objective) -> DiffusionObjective:
    """The diffusion objective itself, without what drops sources around it."""
    while isinstance(objective, SourceDropout):
        objective = objective.objective
    if not isinstance(objective, DiffusionObjective):
        raise Problem("The loss at each time is that of a diffusion model, and this objective has no times.")
    return objective


def _canvases(
    system: DiffusionModel, pairs: Sequence[Pair], *, seed: int, batch: int
) -> Iterator[tuple[Canvas, Tensor]]:
    """Canvases of so many pairs, and the number of each place in its target (B, L); −1 outside of it."""
    layout, ended = system.layout, int(bool(system.layout.end_tokens))
    sources = system.tokenizer.encode([pair.src for pair in pairs])
    targets = system.tokenizer.encode([pair.trg for pair in pairs])
    for start in range(0, len(pairs), batch):
        chosen = slice(start, start + batch)
        source = RaggedRows.from_lists([row[: system.max_source] for row in sources[chosen]])
        target = RaggedRows.from_lists([row[: system.max_target] for row in targets[chosen]])
        lengths = torch.from_numpy(target.lengths)[:, None]
        canvas = layout.make_canvas(source, target)
        position = torch.arange(canvas.tokens.shape[1]) - layout.target_mask(canvas).int().argmax(
            1, keepdim=True
        )
        position = torch.where((position >= 0) & (position < lengths + ended), position, -1)
        u = uniform(make_key(seed, _LAYOUT, torch.arange(start, start + len(position))))
        yield layout.randomise(canvas, u).to(system.device), position.to(system.device)


_NOISE, _STEP_FLAGS, _LAYOUT = 1, 2, 3  # what a key is for


def learned_schedule(system: DiffusionModel, *, name: str = "model", points: int = 20) -> Finding:
    """ᾱ of each position at each time, and sqrt's; a schedule that knows no positions has one, 0."""
    times = torch.arange(points + 1, dtype=torch.float64) / points
    width = getattr(system.layout, "width", system.max_target)
    learned = system.schedule(times.to(system.device), width).alpha.square()[..., 0].cpu()  # (times, L)
    if isinstance(system.layout, AlignedJointLayout) and learned.shape[1] > 1:
        learned = learned[:, system.layout.target_start :]  # positions are counted from the target's start
    sqrt = SqrtSchedule(system.schedule.steps).alpha_bar(times)
    rows: list[ResultRow] = [
        {
            "time": time,
            "position": position,
            "alpha_bar": learned[row, position].item(),
            "sqrt": sqrt[row].item(),
        }
        for row, time in enumerate(times.tolist())
        for position in range(learned.shape[1])
    ]

    def draw(figure: Any) -> None:
        lines = {"sqrt": (times.tolist(), sqrt.tolist())} | {
            f"position {position}": (times.tolist(), learned[:, position].tolist())
            for position in _evenly_spaced_indices(learned.shape[1])
        }
        plot_lines(figure.subplots(), lines, x="time t", y="signal ᾱ")

    return Finding(
        name=f"schedule-{_file(name)}",
        title=f"The schedule of {name} at each position",
        paper_figure="SeqDiffuSeq, figure 2, left",
        rows=rows,
        signature=f"schedule:{type(system.schedule).__name__.lower()}|steps:{system.schedule.steps}",
        draw=draw,
    )


def _evenly_spaced_indices(count: int) -> list[int]:
    """A few places, evenly spaced from the first to the last."""
    few = min(count, SHOWN)
    return sorted({round(number * (count - 1) / max(1, few - 1)) for number in range(few)})


def _file(name: str) -> str:
    """The name without what a file's name must not have."""
    return name.replace("/", "-").strip("-")
