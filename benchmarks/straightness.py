"""How close the loss against time is to a line, position by position (SeqDiffuSeq, figure 2).

    python benchmarks/straightness.py PAIRS MODEL [MODEL …] [--pairs 1000] [--points 40] [--seed 0]

For each model the mean loss of each position of the target (the term that the schedule adapts to) is taken
at the middles of `points` equal bins of time, with the same pairs, noise and self-conditioning at
all of them. Two numbers say how straight it is: R² of the best line, and R² of the line from the first loss
to the last, which is what a refit aims at. A model with a refitted schedule is measured on its own schedule
and, with the same weights, on sqrt; it was not trained on the noise of sqrt at those times, so a model that
was trained on sqrt throughout is the fairer comparison: give both. Positions that fewer than a third of the
targets reach are left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from noise2text.analysis.positions import position_losses
from noise2text.data.corpus import Pair, read_pairs
from noise2text.diffusion.adaptive_schedule import AdaptiveSchedule
from noise2text.diffusion.schedules import SqrtSchedule
from noise2text.models import DiffusionModel
from noise2text.models.folder import load, load_config

MIN_SHARE = 1 / 3
TERM = "difficulty"


def best_line(losses: np.ndarray) -> float:
    """The share of the variance of losses at even times that a line explains: the squared correlation."""
    return float(np.corrcoef(np.arange(len(losses)), losses)[0, 1] ** 2)


def chord(losses: np.ndarray) -> float:
    """The same share for the line from the first loss to the last; below 0 where the mean is closer."""
    line = np.linspace(losses[0], losses[-1], len(losses))
    return float(1 - ((losses - line) ** 2).sum() / ((losses - losses.mean()) ** 2).sum())


def curves(
    folder: Path, model: DiffusionModel, pairs: Sequence[Pair], *, points: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The losses (times, positions), and how many pairs have each position."""
    recipe, config = load_config(folder)
    objective = recipe.objective(config, model)
    times = [(point + 0.5) / points for point in range(points)]
    sums, counts = position_losses(model, objective, pairs, times=times, seed=seed, term=TERM)
    return (sums / counts.clamp(min=1)).numpy(), counts[0].numpy()


def schedules(model: DiffusionModel) -> Iterator[tuple[str, AdaptiveSchedule]]:
    """The model's own schedule and, if it is another, sqrt."""
    own = model.schedule
    assert isinstance(own, AdaptiveSchedule), "Only SeqDiffuSeq has a schedule for each position."
    start, positions = SqrtSchedule(own.num_timesteps), own.alpha_bars.shape[1]
    sqrt = AdaptiveSchedule(start, positions, bin_size=own.bin_size).to(own.alpha_bars.device)
    refitted = not torch.equal(own.alpha_bars, sqrt.alpha_bars)
    yield ("refitted" if refitted else "sqrt"), own
    if refitted:
        yield "the same weights on sqrt", sqrt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", metavar="PAIRS")
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--points", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    pairs = list(read_pairs(arguments.data))[: arguments.pairs]
    for folder in arguments.models:
        model = load(folder, precision="float32")
        assert isinstance(model, DiffusionModel)
        for name, schedule in schedules(model):
            model.schedule = schedule
            losses, counts = curves(folder, model, pairs, points=arguments.points, seed=arguments.seed)
            print(f"{folder}, {name}")
            print("  position  targets   first    last  R² of the best line  of the chord")
            for position in np.flatnonzero(counts >= MIN_SHARE * len(pairs)):
                own = losses[:, position]
                print(
                    f"  {position:8d}  {counts[position] / len(pairs):6.0%}  {own[0]:6.3f}  {own[-1]:6.3f}"
                    f"  {best_line(own):19.4f}  {chord(own):12.4f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
