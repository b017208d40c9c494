"""DiffuSeq on small batches of mostly padding writes only padding (Demirag, 2023, 4.2.2 and figure 4.3).

    python benchmarks/collapse.py [NAME …] [--steps 800] [--out curves.json]

Dates on DiffuSeq's `tiny`, but on a canvas so wide that 80 % of it is padding (87 % in the paper), and 92 %
of what follows the separator. Each run is named by its canvas, its pairs a step and what its error counts.
It prints the nll of the right token after rounding ẑ₀ over the steps: of all that follows the separator, as
in the figure, and of the text and its end alone; then the share of texts that are empty, and that are right.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from noise2text.data.corpus import Pair
from noise2text.data.dates import make_date_splits
from noise2text.data.layouts.base import Canvas
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer, learn_characters
from noise2text.diffusion.losses import MseLoss, NllLoss, scored_positions
from noise2text.recipes.diffuseq import PRESETS, build, objective
from noise2text.training.loop import StepSettings, train_steps
from noise2text.training.lr_schedules import cosine

PAIRS, TESTED, WINDOW, SEED = 20_000, 50, 100, 0


@dataclasses.dataclass(frozen=True)
class Trial:
    """A canvas, a batch, and whether the error counts the text alone."""

    max_target: int
    rows: int
    text_only: bool = False


TRIALS = {
    "wide-1": Trial(120, 1),
    "narrow-1": Trial(10, 1),
    "wide-1-text": Trial(120, 1, text_only=True),
    "wide-8": Trial(120, 8),
}


def text_positions(pad: int) -> Callable[[Canvas], Tensor]:
    """The positions of the text and its end, for a term that counts nothing else."""
    return lambda canvas: canvas.scored & (canvas.tokens != pad)


def run(
    trial: Trial, steps: int, splits: dict[str, list[Pair]], tokenizer: Tokenizer
) -> dict[str, list[float]]:
    """The curves of a trial, and how its texts turned out."""
    torch.manual_seed(SEED)
    config = PRESETS["tiny"].replace(max_target=trial.max_target)
    model = build(config, tokenizer)
    aim = objective(config, model)
    text = text_positions(tokenizer.pad)
    aim.terms |= {
        "nll": NllLoss(weight=None),
        "text": NllLoss("text", None, make_mask=text),
        "vlb": MseLoss(make_mask=text if trial.text_only else scored_positions),
    }
    sources, targets = (
        tokenizer.encode([getattr(p, side) for p in splits["train"]]) for side in ("src", "trg")
    )

    def batches(step: int) -> Sequence[Canvas]:
        chosen = np.random.default_rng([SEED, step]).integers(len(sources), size=trial.rows)
        return [
            model.layout.make_canvas(
                RaggedRows.from_lists([sources[i] for i in chosen]),
                RaggedRows.from_lists([targets[i] for i in chosen]),
            )
        ]

    curves: dict[str, list[float]] = {"nll": [], "text": [], "vlb": []}
    sums = dict.fromkeys(curves, 0.0)
    reports = train_steps(
        aim,
        torch.optim.AdamW(model.parameters(), betas=config.optim.betas, weight_decay=0.0),
        batches,
        first=1,
        last=steps,
        settings=StepSettings(
            peak_lr=config.optim.lr,
            lr_schedule=cosine(config.optim.warmup, steps),
            clip_norm=config.optim.clip_norm,
            seed=SEED,
        ),
    )
    for report in reports:
        sums = {name: value + float(report.means[name]) for name, value in sums.items()}
        if report.step % WINDOW == 0:
            for name, value in sums.items():
                curves[name].append(value / WINDOW)
            sums = dict.fromkeys(curves, 0.0)
    tested = splits["test"][:TESTED]
    made = model.generate([pair.src for pair in tested], batch=50, steps=20).texts
    curves["empty"] = [sum(not text for text in made) / TESTED]
    curves["exact"] = [sum(text == pair.trg for text, pair in zip(made, tested, strict=True)) / TESTED]
    return curves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[], help=f"of {', '.join(TRIALS)}; all of them without")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    splits = make_date_splits(PAIRS, seed=SEED)
    tokenizer = learn_characters([pair.src + pair.trg for pair in splits["train"]], lowercase=True)
    found = {}
    for name in arguments.names or TRIALS:
        start = time.perf_counter()
        curves = found[name] = run(TRIALS[name], arguments.steps, splits, tokenizer)
        seconds = time.perf_counter() - start
        print(f"{name}: {curves['empty'][0]:.0%} empty, {curves['exact'][0]:.0%} right, {seconds:.0f} s")
        for title in ("nll", "text"):
            print(f"  {title:<5}" + " ".join(f"{value:6.2f}" for value in curves[title]), flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
