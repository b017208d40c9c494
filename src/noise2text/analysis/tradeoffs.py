"""Quality against candidates, steps and diversity.

- Candidates (DiffuSeq, figure 3; SeqDiffuSeq, figure 3): all are generated once, and the model's selector
  chooses among the first 1, 2, 5, … of them. Each noise has its own key, so more candidates never change the
  first ones, and each point is what a run with that number of candidates gives.
- Steps (Difformer, table 8; DiffuSeq, figure 6): the same sources with fewer steps, without early stopping,
  and the time they take.
- Diversity (DiffuSeq, figure 4; Difformer, figure 3 over DGS_MAX): one point per model; its samples come from
  several seeds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from noise2text.analysis.finding import LINE_STYLES, Finding, ResultRow
from noise2text.analysis.generation import (
    GenerationOptions,
    ScoreColumns,
    analyze_models,
    diversity_scores,
    draw_samples,
    find_setting,
    known_settings,
    plot_by_model,
    score_samples,
    signature,
)
from noise2text.analysis.inputs import Inputs
from noise2text.core.command_line import parse_numbers
from noise2text.core.config import apply_overrides, option
from noise2text.data.corpus import Pair
from noise2text.generation.selection import Candidate, Selector
from noise2text.models import GenerationOutput, Model

__all__ = [
    "CandidateOptions",
    "DiversityOptions",
    "StepOptions",
    "analyze_candidates",
    "analyze_diversity",
    "analyze_steps",
    "diversity_finding",
    "quality_by_candidates",
    "quality_by_diversity",
    "quality_by_steps",
]

CANDIDATE_SETTINGS = ("noise_beam", "samples", "neighbours")
"""The setting for the number of candidates, by family of models."""
STEP_SETTINGS = ("steps", "iterations")
COUNTS = (1, 2, 5, 10, 20)


@dataclass(frozen=True)
class CandidateOptions(GenerationOptions):
    """The numbers of candidates."""

    counts: str = option("1,2,5,10,20", "numbers of noises, separated by commas")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.numbers()

    def numbers(self) -> tuple[int, ...]:
        """The numbers in rising order."""
        return tuple(sorted(set(parse_numbers(self.counts, "The setting counts"))))


@dataclass(frozen=True)
class StepOptions(CandidateOptions):
    """The numbers of steps."""

    counts: str = option("1,2,5,10,20,50", "numbers of steps, separated by commas")


@dataclass(frozen=True)
class DiversityOptions(GenerationOptions):
    """The number of samples."""

    samples: int = option(3, "texts per source, each with its own seed", minimum=2)


def analyze_candidates(inputs: Inputs, options: CandidateOptions) -> list[Finding]:
    """The analysis `candidates`."""
    return analyze_models(quality_by_candidates, inputs, options, counts=options.numbers())


def analyze_steps(inputs: Inputs, options: StepOptions) -> list[Finding]:
    """The analysis `steps`."""
    return analyze_models(quality_by_steps, inputs, options, counts=options.numbers())


def analyze_diversity(inputs: Inputs, options: DiversityOptions) -> list[Finding]:
    """The analysis `diversity`."""
    return analyze_models(quality_by_diversity, inputs, options, samples=options.samples)


def quality_by_candidates(
    models: Mapping[str, Model],
    pairs: Sequence[Pair],
    *,
    counts: Sequence[int] = COUNTS,
    seed: int = 0,
    batch: int = 64,
    settings: Mapping[str, Any] | None = None,
) -> Finding:
    """BLEU of the text that each model selects from its first candidates, and their diversity.

    By default the candidates have one length, so that they differ only in noise, and MBR selects.
    """
    settings = settings or {}
    rows: list[ResultRow] = []
    for name, model in models.items():
        count_setting = find_setting(
            model, name, CANDIDATE_SETTINGS, wanted="The number of candidates is varied"
        )
        defaults = known_settings(model, length_beam=1, select="mbr")
        chosen = defaults | dict(settings) | {count_setting: max(counts)}
        [output] = draw_samples(model, pairs, seed=seed, batch=batch, settings=chosen)
        select = model.build_selector(apply_overrides(model.generation_config, chosen, origin="analyse"))
        for count in counts:
            own = _first_candidates(output, pairs, count, of=max(counts))
            rows.append({"model": name, "drawn": count, **_score_selected(select, own, pairs)})
    columns = ("bleu", "div_4")
    return Finding(
        name="candidates",
        title="Quality against the number of candidates",
        paper_figure="DiffuSeq, figure 3; SeqDiffuSeq, figure 3",
        rows=rows,
        signature=signature(models, pairs, {"length_beam": 1, "select": "mbr"} | dict(settings), seed=seed),
        draw=partial(plot_by_model, rows=rows, x="drawn", label="candidates drawn", columns=columns),
    )


def _first_candidates(
    output: GenerationOutput, pairs: Sequence[Pair], count: int, *, of: int
) -> list[list[Candidate]]:
    """Each sentence's candidates from the first `count` of `of` noises; noises of a length are adjacent."""
    return [
        [
            Candidate(text, (), score, pair.src)
            for index, (text, score) in enumerate(zip(texts, scores, strict=True))
            if index % of < count
        ]
        for texts, scores, pair in zip(output.candidates, output.scores, pairs, strict=True)
    ]


def _score_selected(
    select: Selector, sentences: Sequence[Sequence[Candidate]], pairs: Sequence[Pair]
) -> ScoreColumns:
    """The number of candidates per sentence, BLEU of the selected ones, and the diversity of all."""
    filled = [own for own in sentences if own]  # an empty source has no candidates
    best = iter(select.select_all(filled))
    texts = [own[next(best)].text if own else "" for own in sentences]
    candidate_texts = [[candidate.text for candidate in own] for own in filled]
    max_candidates = max(map(len, candidate_texts), default=0)
    return {"candidates": max_candidates, "bleu": score_samples([texts], pairs)["bleu"]} | diversity_scores(
        candidate_texts
    )


def quality_by_steps(
    models: Mapping[str, Model],
    pairs: Sequence[Pair],
    *,
    counts: Sequence[int] = (1, 2, 5, 10, 20, 50),
    seed: int = 0,
    batch: int = 64,
    settings: Mapping[str, Any] | None = None,
) -> Finding:
    """BLEU and time of each model for each number of steps, without early stopping."""
    settings = settings or {}
    rows: list[ResultRow] = []
    for name, model in models.items():
        count_setting = find_setting(model, name, STEP_SETTINGS, wanted="The number of steps is varied")
        whole = dict(settings) | known_settings(model, stop_early=0)
        # The first call may capture CUDA graphs or fill caches, so it is not timed.
        draw_samples(model, pairs, seed=seed, batch=batch, settings=whole | {count_setting: min(counts)})
        for count in counts:
            chosen = whole | {count_setting: count}
            started = time.perf_counter()
            [output] = draw_samples(model, pairs, seed=seed, batch=batch, settings=chosen)
            seconds = time.perf_counter() - started
            quality = score_samples([output.texts], pairs)["bleu"]
            speed = {"seconds": seconds, "sentences_per_second": len(pairs) / seconds}
            rows.append({"model": name, "steps": count, "bleu": quality, **speed})

    def draw(figure: Any) -> None:
        plot_by_model(figure, rows=rows, x="steps", label="steps", columns=["bleu", "sentences_per_second"])
        for axes in figure.axes:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("")

    return Finding(
        name="steps",
        title="Quality and speed against the number of steps",
        paper_figure="Difformer, table 8; DiffuSeq, figure 6",
        rows=rows,
        signature=signature(models, pairs, dict(settings) | {"stop_early": 0}, seed=seed, batch=batch),
        draw=draw,
    )


def quality_by_diversity(
    models: Mapping[str, Model],
    pairs: Sequence[Pair],
    *,
    samples: int = 3,
    seed: int = 0,
    batch: int = 64,
    settings: Mapping[str, Any] | None = None,
) -> Finding:
    """Each model's mean BLEU and the diversity of its samples, each with a single candidate."""
    settings = settings or {}
    output = {}
    for name, model in models.items():
        chosen = known_settings(model, noise_beam=1, length_beam=1) | dict(settings)
        output[name] = draw_samples(model, pairs, count=samples, seed=seed, batch=batch, settings=chosen)
    single = {"noise_beam": 1, "length_beam": 1} | dict(settings)
    return diversity_finding(
        output, pairs, signature=signature(models, pairs, single, seed=seed, samples=samples)
    )


def diversity_finding(
    output: Mapping[str, Sequence[GenerationOutput]], pairs: Sequence[Pair], *, signature: str
) -> Finding:
    """The finding of `quality_by_diversity` for samples that were drawn before, by model."""
    rows: list[ResultRow] = [
        {"model": name, **score_samples([each.texts for each in samples], pairs)}
        for name, samples in output.items()
    ]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number, row in enumerate(rows):
            style = {**LINE_STYLES[number % len(LINE_STYLES)], "linestyle": "none"}
            axes.plot([row["div_4"]], [row["bleu"]], label=row["model"], markersize=7, **style)
        axes.set_xlabel("div-4")
        axes.set_ylabel("BLEU")
        axes.grid(alpha=0.25)
        axes.legend(fontsize=8, frameon=False)

    return Finding(
        name="diversity",
        title="Quality against diversity",
        paper_figure="DiffuSeq, figure 4; Difformer, figure 3",
        rows=rows,
        signature=signature,
        draw=draw,
    )
