"""The loss by time and position, and the learned schedule (SeqDiffuSeq, figure 2).

The loss is a term of the training objective, at chosen times and without a weight for the time:

    L(t, i) = mean over pairs of the loss of the target's i-th token at time t

All times use the same noise and the same self-conditioning flags. An adaptive schedule has one curve ᾱⁱ(t)
per position, shown with the sqrt schedule from which it started. A schedule without positions is one curve.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from noise2text.analysis.finding import Finding, ResultRow, draw_lines
from noise2text.analysis.generation import collect_references, require_diffusion
from noise2text.analysis.inputs import Inputs
from noise2text.analysis.traces import evenly_spaced
from noise2text.core.config import Config, option
from noise2text.core.errors import Problem
from noise2text.core.random import make_key, uniform
from noise2text.data.corpus import Pair
from noise2text.data.layouts.aligned_joint import AlignedJointLayout
from noise2text.data.layouts.base import Canvas
from noise2text.data.ragged import RaggedRows
from noise2text.diffusion.losses import SentenceMean
from noise2text.diffusion.schedules import SqrtSchedule
from noise2text.models import DiffusionModel
from noise2text.models.folder import load, load_config
from noise2text.training.objective import DiffusionObjective, Objective
from noise2text.training.objective_wrapper import ObjectiveWrapper

__all__ = [
    "PositionOptions",
    "analyze_positions",
    "learned_schedule",
    "losses_by_position",
    "position_losses",
]

TERMS = ("difficulty", "vlb", "nll")
"""The default term is the first of these that the objective has; a schedule adapts to difficulty."""
SHOWN = 6  # positions in a figure


@dataclass(frozen=True)
class PositionOptions(Config):
    """The number of times and pairs, and the term of the loss."""

    points: int = option(20, "number of times, evenly spaced up to 1", minimum=1)
    sentences: int = option(200, "how many of the pairs to use, from the first", minimum=1)
    batch: int = option(64, "pairs per batch", minimum=1)
    term: str = option(
        "", "the term of the objective; by default the one that the schedule adapts to, else vlb"
    )


def analyze_positions(inputs: Inputs, options: PositionOptions) -> list[Finding]:
    """The analysis `positions`: the losses and the schedule of each model."""
    pairs, found = inputs.pairs[: options.sentences], []
    for name, folder in inputs.folders_by_name().items():
        recipe, config = load_config(folder)
        model = require_diffusion(
            load(folder, device=inputs.device, precision="float32"), name, wanted="The loss at each time"
        )
        objective = recipe.objective(config, model).to(model.device)
        losses = losses_by_position(
            model,
            objective,
            pairs,
            name=name,
            points=options.points,
            seed=inputs.seed,
            batch=options.batch,
            term=options.term,
        )
        found += [losses, learned_schedule(model, name=name, points=options.points)]
    return found


def losses_by_position(
    model: DiffusionModel,
    objective: Objective,
    pairs: Sequence[Pair],
    *,
    name: str = "model",
    points: int = 20,
    seed: int = 0,
    batch: int = 64,
    term: str = "",
) -> Finding:
    """The mean loss at each position of the target and each time."""
    collect_references(pairs)
    term = term or next(each for each in TERMS if each in objective.terms)
    if term not in objective.terms:
        raise Problem(f"The objective has no term {term!r}; it has {', '.join(objective.terms)}.")
    times = [(point + 1) / points for point in range(points)]
    sums, counts = position_losses(model, objective, pairs, times=times, seed=seed, batch=batch, term=term)
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
    shown = evenly_spaced(counts.any(0).nonzero().flatten().tolist(), SHOWN)
    lines = {f"position {position}": (times, means[:, position].tolist()) for position in shown}
    return Finding(
        name=f"losses-{_file_name(name)}",
        title=f"The loss of {name} at each time and position",
        paper_figure="SeqDiffuSeq, figure 2, middle and right",
        rows=rows,
        signature=f"term:{term}|sentences:{len(pairs)}|seed:{seed}",
        draw=partial(draw_lines, lines=lines, x="time t", y=f"loss ({term})"),
    )


@torch.no_grad()
def position_losses(
    model: DiffusionModel,
    objective: Objective,
    pairs: Sequence[Pair],
    *,
    times: Sequence[float],
    seed: int = 0,
    batch: int = 64,
    term: str = "vlb",
) -> tuple[Tensor, Tensor]:
    """The sums and the counts of a term at each time and position of the target, both (times, positions).

    Positions are counted from the start of the target to its end; padding after it is left out.
    """
    inner = copy(unwrap_objective(objective)).eval()
    inner.terms = {  # of each position, also where the objective averages by sentence
        name: each.term if isinstance(each, SentenceMean) else each for name, each in inner.terms.items()
    }
    max_positions = model.max_target + 1
    sums, counts = torch.zeros(2, len(times), max_positions, dtype=torch.float64)
    for number, (canvas, position) in enumerate(_canvases(model, pairs, seed=seed, batch=batch)):
        rows = torch.arange(number * batch, number * batch + len(position), device=position.device)
        draws = inner.draw(canvas, make_key(seed, _NOISE, rows), make_key(seed, _STEP_FLAGS, number))
        for row, time in enumerate(times):
            t = torch.full_like(
                draws.t,
                max(1, round(time * inner.time_sampler.num_timesteps)) / inner.time_sampler.num_timesteps,
            )
            token_loss = inner(canvas, replace(draws, t=t, weight=torch.ones_like(draws.weight)))[term]
            if token_loss.values.shape != position.shape:
                raise Problem(f"The term {term!r} has one value per sentence: choose one per position.")
            counted = token_loss.mask & (position >= 0)
            where = position[counted].cpu()
            sums[row].index_add_(0, where, token_loss.values[counted].double().cpu())
            counts[row].index_add_(0, where, torch.ones(len(where), dtype=torch.float64))
    used = 1 + max(counts.any(0).nonzero().flatten().tolist(), default=-1)
    return sums[:, :used], counts[:, :used]


def unwrap_objective(objective: Objective) -> DiffusionObjective:
    """The diffusion objective, without the wrappers around it."""
    while isinstance(objective, ObjectiveWrapper):
        objective = objective.objective
    if not isinstance(objective, DiffusionObjective):
        raise Problem("The loss at each time needs a diffusion model, but this objective has no times.")
    return objective


def _canvases(
    model: DiffusionModel, pairs: Sequence[Pair], *, seed: int, batch: int
) -> Iterator[tuple[Canvas, Tensor]]:
    """The canvases, and the position of each element in its target (B, L), −1 outside of it."""
    layout, end_length = model.layout, int(bool(model.layout.end_tokens))
    sources = model.tokenizer.encode([pair.src for pair in pairs])
    targets = model.tokenizer.encode([pair.trg for pair in pairs])
    for start in range(0, len(pairs), batch):
        chosen = slice(start, start + batch)
        source = RaggedRows.from_lists([row[: model.max_source] for row in sources[chosen]])
        target = RaggedRows.from_lists([row[: model.max_target] for row in targets[chosen]])
        lengths = torch.from_numpy(target.lengths)[:, None]
        canvas = layout.make_canvas(source, target)
        position = torch.arange(canvas.tokens.shape[1]) - layout.target_mask(canvas).int().argmax(
            1, keepdim=True
        )
        position = torch.where((position >= 0) & (position < lengths + end_length), position, -1)
        u = uniform(make_key(seed, _LAYOUT, torch.arange(start, start + len(position))))
        yield layout.randomize(canvas, u).to(model.device), position.to(model.device)


_NOISE, _STEP_FLAGS, _LAYOUT = 1, 2, 3  # random streams


def learned_schedule(model: DiffusionModel, *, name: str = "model", points: int = 20) -> Finding:
    """ᾱ at each position and time, and that of sqrt; a schedule without positions has only position 0."""
    times = torch.arange(points + 1, dtype=torch.float64) / points
    width = getattr(model.layout, "width", model.max_target)
    learned = model.schedule(times.to(model.device), width).alpha.square()[..., 0].cpu()  # (times, L)
    if isinstance(model.layout, AlignedJointLayout) and learned.shape[1] > 1:
        learned = learned[:, model.layout.target_start :]  # the first position is the target's
    sqrt = SqrtSchedule(model.schedule.num_timesteps).alpha_bar(times)
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
    lines = {"sqrt": (times.tolist(), sqrt.tolist())} | {
        f"position {position}": (times.tolist(), learned[:, position].tolist())
        for position in evenly_spaced(range(learned.shape[1]), SHOWN)
    }
    return Finding(
        name=f"schedule-{_file_name(name)}",
        title=f"The schedule of {name} at each position",
        paper_figure="SeqDiffuSeq, figure 2, left",
        rows=rows,
        signature=f"schedule:{type(model.schedule).__name__.lower()}|steps:{model.schedule.num_timesteps}",
        draw=partial(draw_lines, lines=lines, x="time t", y="signal ᾱ"),
    )


def _file_name(name: str) -> str:
    """The name without characters that a file name must not have."""
    return name.replace("/", "-").strip("-")
