"""`noise2text rescale`: find a noise factor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import JsonOption, app
from noise2text.core.errors import Problem

__all__ = ["rescale"]

SCHEDULE = "sqrt"
VOCABULARY, DIMENSION = 10_000, 128  # of the random embeddings


@app.command()
def rescale(
    model: Annotated[
        Path | None, typer.Argument(help="A trained model, to use its embeddings and schedule.")
    ] = None,
    schedule: Annotated[
        str, typer.Option(help="The noise schedule: a value of the setting schedule.")
    ] = SCHEDULE,
    vocab: Annotated[int, typer.Option(help="V, the number of random embeddings.")] = VOCABULARY,
    dim: Annotated[int, typer.Option(help="d, their dimension.")] = DIMENSION,
    target: Annotated[float, typer.Option(help="The largest degeneration score allowed.")] = 0.15,
    variance_preserving: Annotated[
        bool, typer.Option("--variance-preserving", help="Rescale by eq. 8, which preserves the variance.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Decides the random embeddings and noise.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Find the noise factor for a schedule.

    It is the factor that keeps the schedule from degenerating (Difformer, appendix D).
    """
    from noise2text.commands.rescale import suggest_noise_factor

    if model is not None and (schedule, vocab, dim) != (SCHEDULE, VOCABULARY, DIMENSION):
        raise Problem("A model has its own schedule and embeddings: leave --schedule, --vocab and --dim out.")
    found = suggest_noise_factor(
        model,
        schedule=schedule,
        vocab=vocab,
        dim=dim,
        target=target,
        preserving=variance_preserving,
        seed=seed,
    )
    if as_json:
        print(json.dumps(found))
        return
    scores = f"degeneration score {found['dgs']:.3f} (unscaled {found['dgs_unscaled']:.3f})"
    print(f"factor {found['factor']:g}: {scores}")
