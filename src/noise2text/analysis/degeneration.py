"""The degenerated model at each noise level (Difformer, 3.2 and appendix A).

The degenerated model looks at each position alone and returns the embedding with the least loss

    f_dg(z) = argmin_{e_y} ℒ(z, e_y),    ℒ(z, e_y) = ‖z − e_y‖²/d − log p(y | z),    p(y | z) ∝ exp(z · e_y).

Its accuracy at time t is DGS_t (figure 2b; `diffusion/degeneration_score.py` computes the score, with the
nearest embedding). Rescaling by F leaves the fraction ᾱ/(ᾱ + F²β̄) of the signal (figure 2c). Theorem 1 says
that the degenerated model is a global minimum of the objective as β̄ → 0 and d → ∞, because its loss

    ℒ(f_dg(z), z₀),    z = √(1 − β̄)·z₀ + √β̄·ε

goes to 0; figure 5 shows how fast. All times, factors and β̄ use the same tokens and noises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from noise2text.analysis.finding import Finding, ResultRow, draw_lines
from noise2text.analysis.generation import require_diffusion
from noise2text.analysis.inputs import Inputs
from noise2text.analysis.positions import unwrap_objective
from noise2text.core.config import Config, option
from noise2text.core.errors import Problem
from noise2text.diffusion.degeneration_score import degeneration_scores, random_embeddings
from noise2text.diffusion.schedules import SCHEDULES, Rescaled, Schedule
from noise2text.models.folder import load, load_config

__all__ = [
    "DegenerationOptions",
    "ScheduleAndEmbeddings",
    "analyze_degeneration",
    "degenerated_losses",
    "degeneration_curves",
    "loss_curves",
    "random_tables",
    "rescaled_schedules",
]

FACTORS = (1.0, 2.0, 4.0, 8.0, 16.0)
DIMENSIONS = (16, 32, 64, 128)
VOCABULARY = 5000
DIMENSION = 128


@dataclass(frozen=True)
class DegenerationOptions(Config):
    """The size of the random embeddings, and the resolution of the curves."""

    vocabulary: int = option(VOCABULARY, "random embeddings: number of tokens", minimum=2)
    dimension: int = option(DIMENSION, "random embeddings: dimension for the degeneration score", minimum=1)
    samples: int = option(500, "tokens noised for the loss; the score uses four times as many", minimum=1)
    cells: int = option(50, "number of times", minimum=1)


@dataclass(frozen=True)
class ScheduleAndEmbeddings:
    """A schedule and the embeddings that its noise is added to."""

    schedule: Schedule
    embeddings: Tensor  # (V, d)


def analyze_degeneration(inputs: Inputs, options: DegenerationOptions) -> list[Finding]:
    """The analysis `degeneration`: of models, with their sampling and training schedules, or of random
    embeddings."""
    cases = _cases(inputs) or _random_cases(options.vocabulary, options.dimension, seed=inputs.seed)
    tables = {name: cases[name].embeddings for name in inputs.folders_by_name()}
    more = random_tables(options.vocabulary, DIMENSIONS, seed=inputs.seed)
    return [
        degeneration_curves(cases, cells=options.cells, samples=4 * options.samples, seed=inputs.seed),
        rescaled_schedules(points=options.cells),
        loss_curves(tables or more, samples=options.samples, seed=inputs.seed),
    ]


def _cases(inputs: Inputs) -> dict[str, ScheduleAndEmbeddings]:
    """Each model's sampling schedule and, if it differs, its training schedule."""
    cases = {}
    for name, folder in inputs.folders_by_name().items():
        recipe, config = load_config(folder)
        loaded = load(folder, device="cpu", precision="float32")
        model = require_diffusion(loaded, name, wanted="The degeneration score")
        table = model.denoiser.embedding.vectors.detach()
        cases[name] = ScheduleAndEmbeddings(model.schedule, table)
        trained = unwrap_objective(recipe.objective(config, model)).schedule
        if trained is not model.schedule:
            cases[f"{name}, in training"] = ScheduleAndEmbeddings(trained, table)
    return cases


def _random_cases(vocabulary: int, dimension: int, *, seed: int) -> dict[str, ScheduleAndEmbeddings]:
    """All known schedules on random embeddings."""
    table = random_embeddings(vocabulary, dimension, seed=seed)
    return {name: ScheduleAndEmbeddings(schedule(), table) for name, schedule in SCHEDULES.items()}


def random_tables(vocabulary: int, dimensions: Sequence[int], *, seed: int) -> dict[str, Tensor]:
    """Random embeddings of several dimensions, by name."""
    return {f"d = {dim}": random_embeddings(vocabulary, dim, seed=seed) for dim in dimensions}


def degeneration_curves(
    cases: Mapping[str, ScheduleAndEmbeddings] | None = None,
    *,
    cells: int = 50,
    samples: int = 2000,
    seed: int = 0,
) -> Finding:
    """DGS_t of each case; by default all known schedules on random embeddings."""
    cases = cases or _random_cases(VOCABULARY, DIMENSION, seed=seed)
    times = [(cell + 0.5) / cells for cell in range(cells)]
    scores = {
        name: degeneration_scores(
            case.schedule, case.embeddings, cells=cells, samples=samples, seed=seed
        ).tolist()
        for name, case in cases.items()
    }
    rows: list[ResultRow] = [
        {"schedule": name, "time": time, "dgs": score}
        for name, curve in scores.items()
        for time, score in zip(times, curve, strict=True)
    ]
    labels = {name: f"{name}, DGS = {sum(curve) / cells:.2f}" for name, curve in scores.items()}
    lines = {labels[name]: (times, curve) for name, curve in scores.items()}
    shapes = _shapes(case.embeddings for case in cases.values())
    means = "; ".join(labels.values())
    return Finding(
        name="degeneration",
        title="Accuracy of the degenerated model at each time",
        paper_figure="Difformer, figure 2b",
        rows=rows,
        signature=f"embeddings:{shapes}|samples:{samples}|cells:{cells}|seed:{seed}|{means}",
        draw=partial(draw_lines, lines=lines, x="time t", y="DGSₜ"),
    )


def rescaled_schedules(
    schedule: Schedule | None = None, *, factors: Sequence[float] = FACTORS, points: int = 50
) -> Finding:
    """α, σ and the signal's fraction of a schedule (default sqrt) at each time, for each noise factor."""
    curve = SCHEDULES["sqrt"]() if schedule is None else schedule
    if not factors or min(factors) <= 0:
        raise Problem(f"The rescaling factors must be above 0, not {', '.join(map(str, factors)) or 'none'}.")
    times = torch.arange(points + 1, dtype=torch.float64) / points
    rows: list[ResultRow] = []
    lines = {}
    for factor in factors:
        level = Rescaled(curve, factor)(times, 1)
        alpha, sigma = level.alpha.flatten(1).mean(1), level.sigma.flatten(1).mean(1)  # over positions
        share = alpha.square() / (alpha.square() + sigma.square())
        lines[f"F = {factor:g}"] = times.tolist(), share.tolist()
        rows += [
            {"factor": factor, "time": time, "alpha": a, "sigma": s, "signal": part}
            for time, a, s, part in torch.stack([times, alpha, sigma, share], dim=1).tolist()
        ]
    return Finding(
        name="rescaled",
        title="The schedule, rescaled by several factors",
        paper_figure="Difformer, figure 2c",
        rows=rows,
        signature=f"schedule:{type(curve).__name__.lower()}|noise:F·σ (eq. 3)",
        draw=partial(draw_lines, lines=lines, x="time t", y="signal ᾱ/(ᾱ + F²β̄)"),
    )


def loss_curves(
    tables: Mapping[str, Tensor] | None = None,
    *,
    noise: Sequence[float] | None = None,
    samples: int = 500,
    seed: int = 0,
) -> Finding:
    """The degenerated model's loss over β̄ for each table; by default random ones of several dimensions."""
    named = tables or random_tables(VOCABULARY, DIMENSIONS, seed=seed)
    levels = [step / 20 for step in range(20)] if noise is None else list(noise)
    losses = {
        name: degenerated_losses(table, levels, samples=samples, seed=seed).mean(1).tolist()
        for name, table in named.items()
    }
    rows: list[ResultRow] = [
        {"embeddings": name, "beta_bar": level, "loss": loss}
        for name, curve in losses.items()
        for level, loss in zip(levels, curve, strict=True)
    ]
    lines = {name: (levels, curve) for name, curve in losses.items()}
    return Finding(
        name="degenerated-loss",
        title="The loss of the degenerated model over noise and dimension",
        paper_figure="Difformer, theorem 1 and figure 5",
        rows=rows,
        signature=f"embeddings:{_shapes(named.values())}|samples:{samples}|seed:{seed}",
        draw=partial(draw_lines, lines=lines, x="noise β̄", y="loss of the degenerated model"),
    )


@torch.no_grad()
def degenerated_losses(
    embeddings: Tensor, noise: Sequence[float], *, samples: int = 500, seed: int = 0
) -> Tensor:
    """ℒ(f_dg(z), z₀) of `samples` tokens of the table (V, d) for each noise β̄: (levels, samples)."""
    if embeddings.ndim != 2 or len(embeddings) < 2:
        raise Problem(f"The embeddings have the shape {tuple(embeddings.shape)}: give one row per token.")
    if not all(0 <= level <= 1 for level in noise):
        raise Problem("The noise β̄ must be between 0 and 1.")
    table = embeddings.detach().double().cpu()
    generator = torch.Generator().manual_seed(2 * seed + 1)  # not the stream of random_embeddings
    tokens = torch.randint(len(table), (samples,), generator=generator)
    epsilon = torch.randn(samples, table.shape[1], generator=generator, dtype=torch.float64)
    return torch.stack(
        [_losses(table, tokens, (1 - level) ** 0.5 * table[tokens] + level**0.5 * epsilon) for level in noise]
    )


def _losses(table: Tensor, tokens: Tensor, z: Tensor) -> Tensor:
    """The loss of f_dg(z) for each z (S, d), given the true tokens (S,)."""
    dots = z @ table.T  # (S, V)
    distance = (table.square().sum(1) - 2 * dots) / table.shape[1]  # ‖z − e‖²/d without the constant ‖z‖²/d
    answer = table[(distance - dots).argmin(1)]  # (S, d); log p = dots + a constant
    error = (answer - table[tokens]).square().mean(1)
    logits = answer @ table.T
    return error + logits.logsumexp(1) - logits.gather(1, tokens[:, None])[:, 0]


def _shapes(tables: Iterable[Tensor]) -> str:
    return " ".join(dict.fromkeys("×".join(map(str, table.shape)) for table in tables))
