"""What quality costs: candidates, steps, diversity.

- Against candidates (DiffuSeq, figure 3; SeqDiffuSeq, figure 3): all are generated once, and the system's
  own selector picks from the first 1, 2, 5, … of them. Noise has a number, so more candidates never change
  the first ones, and each point is what a run with so many candidates would give.
- Against steps (Difformer, table 8; DiffuSeq, figure 6): the same sources with fewer steps, none left out
  at the end, with the time that each takes.
- Against diversity (DiffuSeq, figure 4; Difformer, figure 3 over DGS_MAX): each model is a point; its
  samples come from several seeds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from noise2text.analysis.finding import LOOKS, Finding, Row
from noise2text.analysis.inputs import Inputs
from noise2text.analysis.samples import (
    GenerationOptions,
    Scores,
    compare,
    draw_samples,
    judge,
    load_all,
    plot_by_model,
    setting_of,
    signature,
    those_known,
)
from noise2text.core.config import change, option, require_least
from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair
from noise2text.generation.selection import Candidate, Selector
from noise2text.models import Generated, System

__all__ = [
    "CandidateOptions",
    "DiversityOptions",
    "StepOptions",
    "against_candidates",
    "against_diversity",
    "against_steps",
    "candidates",
    "diversity",
    "diversity_of",
    "steps",
]

CANDIDATES = ("noise_beam", "samples", "neighbours")
"""The settings, one in each family, of how many candidates there are."""
STEPS = ("steps", "iterations")
COUNTS = (1, 2, 5, 10, 20)


def _numbers(text: str, what: str) -> tuple[int, ...]:
    """The whole numbers above 0 of "1,2,5", in rising order."""
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError as error:
        raise Problem(
            f"The setting {what} takes whole numbers with commas between them, not {text!r}."
        ) from error
    if found[0] < 1:
        raise Problem(f"The setting {what} takes numbers of at least 1, not {found[0]}.")
    return tuple(found)


@dataclass(frozen=True)
class CandidateOptions(GenerationOptions):
    """How many candidates are selected from."""

    counts: str = option("1,2,5,10,20", "numbers of noises, with commas between them")

    def __post_init__(self) -> None:
        super().__post_init__()
        _numbers(self.counts, "counts")


@dataclass(frozen=True)
class StepOptions(GenerationOptions):
    """How many steps are taken."""

    counts: str = option("1,2,5,10,20,50", "numbers of steps, with commas between them")

    def __post_init__(self) -> None:
        super().__post_init__()
        _numbers(self.counts, "counts")


@dataclass(frozen=True)
class DiversityOptions(GenerationOptions):
    """How many samples are compared."""

    samples: int = option(3, "texts a source, each with its own seed")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, 2, "samples")


def candidates(inputs: Inputs) -> list[Finding]:
    """The analysis `candidates`."""
    chosen = inputs.chosen(CandidateOptions())
    counts = _numbers(chosen.counts, "counts")
    return [_called(against_candidates, inputs, chosen, counts=counts)]


def steps(inputs: Inputs) -> list[Finding]:
    """The analysis `steps`."""
    chosen = inputs.chosen(StepOptions())
    return [_called(against_steps, inputs, chosen, counts=_numbers(chosen.counts, "counts"))]


def diversity(inputs: Inputs) -> list[Finding]:
    """The analysis `diversity`."""
    chosen = inputs.chosen(DiversityOptions())
    return [_called(against_diversity, inputs, chosen, samples=chosen.samples)]


def _called(analysis: Any, inputs: Inputs, chosen: GenerationOptions, **more: Any) -> Finding:
    found: Finding = analysis(
        load_all(inputs),
        inputs.pairs[: chosen.sentences],
        seed=inputs.seed,
        batch=chosen.batch,
        settings=chosen.settings(),
        **more,
    )
    return found


def against_candidates(
    systems: Mapping[str, System],
    pairs: Sequence[Pair],
    *,
    counts: Sequence[int] = COUNTS,
    seed: int = 0,
    batch: int = 64,
    settings: Mapping[str, Any] | None = None,
) -> Finding:
    """BLEU of what each system selects from its first candidates, and their diversity.

    By default each has one length, so that its candidates differ in noise alone, and selects by MBR.
    """
    settings = settings or {}
    rows: list[Row] = []
    for name, system in systems.items():
        number = setting_of(system, name, CANDIDATES, wanted="Candidates are drawn in some number")
        usual = those_known(system, length_beam=1, select="mbr")
        chosen = usual | dict(settings) | {number: max(counts)}
        [made] = draw_samples(system, pairs, seed=seed, batch=batch, settings=chosen)
        select = system.selector(change(system.how, chosen, where="analyse"))
        for count in counts:
            own = _first(made, pairs, count, of=max(counts))
            rows.append({"model": name, "drawn": count, **_selected(select, own, pairs)})

    def draw(figure: Any) -> None:
        plot_by_model(figure, rows, x="drawn", label="candidates drawn", columns=["bleu", "div_4"])

    return Finding(
        name="candidates",
        title="Quality against the number of candidates",
        after="DiffuSeq, figure 3; SeqDiffuSeq, figure 3",
        rows=rows,
        signature=signature(systems, pairs, {"length_beam": 1, "select": "mbr"} | dict(settings), seed=seed),
        draw=draw,
    )


def _first(made: Generated, pairs: Sequence[Pair], count: int, *, of: int) -> list[list[Candidate]]:
    """Each sentence's candidates of the first `count` noises; a length's noises lie side by side."""
    return [
        [
            Candidate(text, (), score, pair.src)
            for place, (text, score) in enumerate(zip(texts, scores, strict=True))
            if place % of < count
        ]
        for texts, scores, pair in zip(made.candidates, made.scores, pairs, strict=True)
    ]


def _selected(select: Selector, sentences: Sequence[Sequence[Candidate]], pairs: Sequence[Pair]) -> Scores:
    """How many candidates there are a sentence, BLEU of the selected ones, and the diversity of all."""
    filled = [own for own in sentences if own]  # an empty source has no candidates
    best = iter(select.choose_all(filled))
    texts = [own[next(best)].text if own else "" for own in sentences]
    several = [[candidate.text for candidate in own] for own in filled]
    most = max(map(len, several), default=0)
    return {"candidates": most, "bleu": judge([texts], pairs)["bleu"]} | compare(several)


def against_steps(
    systems: Mapping[str, System],
    pairs: Sequence[Pair],
    *,
    counts: Sequence[int] = (1, 2, 5, 10, 20, 50),
    seed: int = 0,
    batch: int = 64,
    settings: Mapping[str, Any] | None = None,
) -> Finding:
    """BLEU and time of each system with so many steps, without an early stop."""
    settings = settings or {}
    rows: list[Row] = []
    for name, system in systems.items():
        number = setting_of(system, name, STEPS, wanted="Quality is set against steps")
        whole = dict(settings) | those_known(system, stop_early=0)
        # The first call may have to record graphs or fill caches: it is not timed.
        draw_samples(system, pairs, seed=seed, batch=batch, settings=whole | {number: min(counts)})
        for count in counts:
            chosen = whole | {number: count}
            started = time.perf_counter()
            [made] = draw_samples(system, pairs, seed=seed, batch=batch, settings=chosen)
            seconds = time.perf_counter() - started
            quality = judge([made.texts], pairs)["bleu"]
            speed = {"seconds": seconds, "sentences_per_second": len(pairs) / seconds}
            rows.append({"model": name, "steps": count, "bleu": quality, **speed})

    def draw(figure: Any) -> None:
        plot_by_model(figure, rows, x="steps", label="steps", columns=["bleu", "sentences_per_second"])
        for axes in figure.axes:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("")

    return Finding(
        name="steps",
        title="Quality and speed against the number of steps",
        after="Difformer, table 8; DiffuSeq, figure 6",
        rows=rows,
        signature=signature(systems, pairs, dict(settings) | {"stop_early": 0}, seed=seed, batch=batch),
        draw=draw,
    )


def against_diversity(
    systems: Mapping[str, System],
    pairs: Sequence[Pair],
    *,
    samples: int = 3,
    seed: int = 0,
    batch: int = 64,
    settings: Mapping[str, Any] | None = None,
) -> Finding:
    """Each system's mean BLEU beside the diversity of its samples, each of which is a lone candidate."""
    settings = settings or {}
    made = {}
    for name, system in systems.items():
        chosen = those_known(system, noise_beam=1, length_beam=1) | dict(settings)
        made[name] = draw_samples(system, pairs, count=samples, seed=seed, batch=batch, settings=chosen)
    alone = {"noise_beam": 1, "length_beam": 1} | dict(settings)
    return diversity_of(made, pairs, signature=signature(systems, pairs, alone, seed=seed, samples=samples))


def diversity_of(
    made: Mapping[str, Sequence[Generated]], pairs: Sequence[Pair], *, signature: str
) -> Finding:
    """The same of samples that were drawn before, by system."""
    rows: list[Row] = [
        {"model": name, **judge([each.texts for each in samples], pairs)} for name, samples in made.items()
    ]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number, row in enumerate(rows):
            look = {**LOOKS[number % len(LOOKS)], "linestyle": "none"}
            axes.plot([row["div_4"]], [row["bleu"]], label=row["model"], markersize=7, **look)
        axes.set_xlabel("div-4")
        axes.set_ylabel("BLEU")
        axes.grid(alpha=0.25)
        axes.legend(fontsize=8, frameon=False)

    return Finding(
        name="diversity",
        title="Quality against diversity",
        after="DiffuSeq, figure 4; Difformer, figure 3",
        rows=rows,
        signature=signature,
        draw=draw,
    )
