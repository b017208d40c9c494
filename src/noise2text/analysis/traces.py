"""How a text emerges from noise: what each step rounds to (Difformer, table 22; SeqDiffuSeq, table 7).

At a time t (1 is noise, 0 is text) `noisy` is z_t and `text` the estimate ẑ₀, both rounded to tokens. For
systems that write from left to right both are what was written so far, and t is the share that was not. The
last row of a sentence is what was chosen; a system that writes at once has only that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from noise2text.analysis.finding import Finding, Row
from noise2text.analysis.inputs import Inputs
from noise2text.core.config import option, require_least
from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair
from noise2text.models import Generated
from noise2text.models.folder import load

__all__ = ["TracesOptions", "evenly", "trace_table", "traces"]

T = TypeVar("T")


@dataclass(frozen=True)
class TracesOptions:
    """How much is shown."""

    sentences: int = option(3, "how many pairs, from the first on")
    stops: int = option(6, "how many steps of each, evenly spaced, the first and the last among them")

    def __post_init__(self) -> None:
        require_least(self, 1, "sentences", "stops")


def evenly(steps: Sequence[T], count: int) -> list[T]:
    """So many of the steps, evenly spaced from the first to the last; all if there are no more."""
    if len(steps) <= count:
        return list(steps)
    if count == 1:
        return [steps[-1]]
    return [steps[round(number * (len(steps) - 1) / (count - 1))] for number in range(count)]


def trace_table(
    pairs: Sequence[Pair], made: Mapping[str, Generated], *, stops: int, signature: str
) -> Finding:
    """Each system's steps to each pair's text; `made` is what generate(trace=True) gave, by system."""
    rows: list[Row] = []
    for number, pair in enumerate(pairs):
        told: dict[str, float | int | str | None] = {
            "sentence": number + 1,
            "source": pair.src,
            "reference": pair.trg,
        }
        for name, generated in made.items():
            for stop in evenly(generated.traces[number], stops):
                rows.append(
                    told | {"system": name, "time": stop.time, "noisy": stop.noisy, "text": stop.text}
                )
            rows.append(told | {"system": name, "time": None, "noisy": None, "text": generated.texts[number]})
    title = "How texts emerge; the row without a time is the text chosen"
    return Finding("traces", title, "Difformer, table 22; SeqDiffuSeq, table 7", rows, signature)


def traces(inputs: Inputs) -> list[Finding]:
    """The table for the first pairs and all models."""
    options = inputs.chosen(TracesOptions())
    pairs = inputs.pairs[: options.sentences]
    sources = [pair.src for pair in pairs]
    made = {
        name: load(folder, device=inputs.device).generate(sources, seed=inputs.seed, trace=True)
        for name, folder in inputs.named().items()
    }
    if not any(steps for generated in made.values() for steps in generated.traces):
        raise Problem(
            "None of these models writes in steps, so there is nothing to trace: name a diffusion model."
        )
    signature = f"seed:{inputs.seed}|stops:{options.stops}|time:1 is noise, 0 is text"
    return [trace_table(pairs, made, stops=options.stops, signature=signature)]
