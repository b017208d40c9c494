"""The variational bound of diffusion models by time: where the nats of a text are lost.

The steps from t = 1 (noise) down to 1/T are divided into intervals, and each has its share of the diffusion
term. The other terms have a table of their own: the prior belongs to t = 1, the rounding to t = 1/T.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from noise2text.analysis.finding import Finding, ResultRow, draw_lines
from noise2text.analysis.inputs import Inputs
from noise2text.core.config import Config, option
from noise2text.models import Model
from noise2text.models.folder import load
from noise2text.models.likelihood_bound import LikelihoodBound

__all__ = ["PAPER_FIGURE", "BoundOptions", "analyze_bound"]

PAPER_FIGURE = "Demirag (2023), eqs. 2.4 and 2.11"


@dataclass(frozen=True)
class BoundOptions(Config):
    """How finely time is divided, and over which pairs the bound is."""

    intervals: int = option(
        40, "intervals of time, in each of which one step per pair is evaluated", minimum=1
    )
    sentences: int = option(200, "how many of the pairs to use, from the first", minimum=1)
    sampling_noise_factor: float | None = option(
        None, "noise of the chain, as in generate; none is the model's"
    )


def analyze_bound(inputs: Inputs, options: BoundOptions) -> list[Finding]:
    """The terms of every model, and the diffusion term by time for those that have one."""
    bounds = {
        name: _measure(load(folder, device=inputs.device), inputs, options)
        for name, folder in inputs.folders_by_name().items()
    }
    signature = " ".join(dict.fromkeys(bound.signature for bound in bounds.values()))
    found = [_by_term(bounds, signature)]
    if any(bound.intervals for bound in bounds.values()):
        found.append(_by_time(bounds, signature))
    return found


def _measure(model: Model, inputs: Inputs, options: BoundOptions) -> LikelihoodBound:
    pairs = inputs.pairs[: options.sentences]
    factor = options.sampling_noise_factor
    overrides: dict[str, Any] = {} if factor is None else {"sampling_noise_factor": factor}
    return model.likelihood_bound(
        [pair.src for pair in pairs],
        [pair.trg for pair in pairs],
        samples=options.intervals,
        seed=inputs.seed,
        **overrides,
    )


def _by_term(bounds: dict[str, LikelihoodBound], signature: str) -> Finding:
    rows: list[ResultRow] = [
        {"model": name, **bound.terms, "nats_per_token": bound.nats_per_token, "se": bound.standard_error}
        for name, bound in bounds.items()
    ]
    title = "bound of −log p in nats per token, by term"
    return Finding("bound-by-term", title, PAPER_FIGURE, rows, signature)


def _by_time(bounds: dict[str, LikelihoodBound], signature: str) -> Finding:
    rows: list[ResultRow] = [
        {"model": name, "from": each.start, "to": each.end, "nats_per_token": each.nats_per_token}
        for name, bound in bounds.items()
        for each in bound.intervals
    ]
    lines = {
        name: (
            [(each.start + each.end) / 2 for each in bound.intervals],
            [each.nats_per_token / (each.start - each.end) for each in bound.intervals],
        )
        for name, bound in bounds.items()
        if bound.intervals
    }
    draw = partial(draw_lines, lines=lines, x="time", y="nats per token and unit of time")
    title = "diffusion term of the bound, by time"
    return Finding("bound-by-time", title, PAPER_FIGURE, rows, signature, draw)
