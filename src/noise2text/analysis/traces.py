"""How a text emerges from noise: what each step rounds to (Difformer, table 22; SeqDiffuSeq, table 7).

At a time t (1 is noise, 0 is text) `noisy` is z_t and `text` the estimate ẑ₀, both rounded to tokens. For
systems that write from left to right both are what was written so far, and t is the share that was not. The
last row of a sentence is what was chosen; a system that writes at once has only that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from noise2text.analysis.finding import Finding, ResultRow
from noise2text.analysis.inputs import Inputs
from noise2text.core.config import option, require_at_least
from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair
from noise2text.models import GenerationOutput
from noise2text.models.folder import load

__all__ = ["TracesOptions", "evenly_spaced", "trace_table", "traces"]

T = TypeVar("T")


@dataclass(frozen=True)
class TracesOptions:
    """How much is shown."""

    sentences: int = option(3, "how many pairs, from the first on")
    shown_steps: int = option(6, "how many steps of each, evenly spaced, the first and the last among them")

    def __post_init__(self) -> None:
        require_at_least(self, 1, "sentences", "shown_steps")


def evenly_spaced(steps: Sequence[T], count: int) -> list[T]:
    """So many of the steps, evenly spaced from the first to the last; all if there are no more."""
    if len(steps) <= count:
        return list(steps)
    if count == 1:
        return [steps[-1]]
    return [steps[round(number * (len(steps) - 1) / (count - 1))] for number in range(count)]


def trace_table(
    pairs: Sequence[Pair], outputs: Mapping[str, GenerationOutput], *, shown_steps: int, signature: str
) -> Finding:
    """Each system's steps to each pair's text; `outputs` is what generate(trace=True) gave, by system."""
    rows: list[ResultRow] = []
    for number, pair in enumerate(pairs):
        shared_columns: dict[str, float | int | str | None] = {
            "sentence": number + 1,
            "source": pair.src,
            "reference": pair.trg,
        }
        for name, generated in outputs.items():
            for step in evenly_spaced(generated.traces[number], shown_steps):
                rows.append(
                    shared_columns
                    | {"system": name, "time": step.time, "noisy": step.noisy, "text": step.text}
                )
            rows.append(
                shared_columns
                | {"system": name, "time": None, "noisy": None, "text": generated.texts[number]}
            )
    title = "How texts emerge; the row without a time is the text chosen"
    return Finding("traces", title, "Difformer, table 22; SeqDiffuSeq, table 7", rows, signature)


def traces(inputs: Inputs) -> list[Finding]:
    """The table for the first pairs and all models."""
    options = inputs.chosen(TracesOptions())
    pairs = inputs.pairs[: options.sentences]
    sources = [pair.src for pair in pairs]
    outputs = {
        name: load(folder, device=inputs.device).generate(sources, seed=inputs.seed, trace=True)
        for name, folder in inputs.folders_by_name().items()
    }
    if not any(steps for generated in outputs.values() for steps in generated.traces):
        raise Problem(
            "None of these models writes in steps, so there is nothing to trace: name a diffusion model."
        )
    signature = f"seed:{inputs.seed}|shown_steps:{options.shown_steps}|time:1 is noise, 0 is text"
    return [trace_table(pairs, outputs, shown_steps=options.shown_steps, signature=signature)]
