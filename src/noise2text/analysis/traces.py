"""Denoising step by step: the text at each step of sampling (Difformer, table 22; SeqDiffuSeq, table 7).

At time t (1 is noise, 0 is text) `noisy` is z_t and `text` the estimate ẑ₀, both rounded to tokens. For an
autoregressive model both are the tokens so far, and t is the fraction that is still missing. The last row of
a sentence is the selected text; a model that generates without steps has only this row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from noise2text.analysis.finding import Finding, ResultRow
from noise2text.analysis.inputs import Inputs
from noise2text.core.config import Config, option
from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair
from noise2text.models import GenerationOutput
from noise2text.models.folder import load

__all__ = ["TracesOptions", "analyze_traces", "evenly_spaced", "trace_table"]

T = TypeVar("T")


@dataclass(frozen=True)
class TracesOptions(Config):
    """How many sentences and steps are shown."""

    sentences: int = option(3, "how many of the pairs to use, from the first", minimum=1)
    shown_steps: int = option(
        6, "steps shown per sentence, evenly spaced from the first to the last", minimum=1
    )


def evenly_spaced(steps: Sequence[T], count: int) -> list[T]:
    """At most `count` of the steps, evenly spaced from the first to the last."""
    if len(steps) <= count:
        return list(steps)
    if count == 1:
        return [steps[-1]]
    return [steps[round(number * (len(steps) - 1) / (count - 1))] for number in range(count)]


def trace_table(
    pairs: Sequence[Pair], outputs: Mapping[str, GenerationOutput], *, shown_steps: int, signature: str
) -> Finding:
    """The steps of each system for each pair; `outputs` are those of generate(trace=True), by system."""
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
    title = "Texts at several steps; the row without a time is the selected text"
    return Finding("traces", title, "Difformer, table 22; SeqDiffuSeq, table 7", rows, signature)


def analyze_traces(inputs: Inputs, options: TracesOptions) -> list[Finding]:
    """The analysis `traces`: the table for the first pairs and all models."""
    pairs = inputs.pairs[: options.sentences]
    sources = [pair.src for pair in pairs]
    outputs = {
        name: load(folder, device=inputs.device).generate(sources, seed=inputs.seed, trace=True)
        for name, folder in inputs.folders_by_name().items()
    }
    if not any(steps for generated in outputs.values() for steps in generated.traces):
        raise Problem(
            "None of these models generates in steps, so there is nothing to trace: add a diffusion model."
        )
    signature = f"seed:{inputs.seed}|shown_steps:{options.shown_steps}|time:1 is noise, 0 is text"
    return [trace_table(pairs, outputs, shown_steps=options.shown_steps, signature=signature)]
