"""What systems write to the same sources again and again, and how good and how different that is.

A sample is one text for each source; the next sample comes from the next seed. Quality is corpus BLEU, the
mean of the samples'; diversity (div-4, self-BLEU) compares the samples of one source (DiffuSeq, table 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from noise2text.analysis.finding import ResultRow, plot_lines
from noise2text.analysis.inputs import Inputs
from noise2text.core.config import option, parse_assignments, require_at_least
from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair
from noise2text.metrics.diversity import div_4, self_bleu
from noise2text.metrics.evaluate import bleu
from noise2text.models import DiffusionModel, GenerationOutput, Model
from noise2text.models.folder import load

__all__ = [
    "GenerationOptions",
    "ScoreColumns",
    "collect_references",
    "diversity_scores",
    "draw_samples",
    "find_setting",
    "known_settings",
    "load_all",
    "plot_by_model",
    "require_diffusion",
    "score_samples",
    "signature",
]

Models = Mapping[str, Model]
Settings = Mapping[str, Any]
ScoreColumns = dict[str, float | int | str | None]  # the columns of a row
LABELS = {"bleu": "BLEU", "div_4": "div-4", "self_bleu": "self-BLEU"}


@dataclass(frozen=True)
class GenerationOptions:
    """What all analyses that generate let one choose."""

    sentences: int = option(200, "how many of the pairs, from the first, are answered")
    batch: int = option(64, "sentences generated at once")
    generation: str = option("", "generation settings, name=value with commas between them")

    def __post_init__(self) -> None:
        require_at_least(self, 1, "sentences", "batch")

    def settings(self) -> dict[str, Any]:
        """The generation settings by name."""
        parts = [part.strip() for part in self.generation.split(",")]
        return parse_assignments([part for part in parts if part])


def load_all(inputs: Inputs, *, precision: str = "auto") -> dict[str, Model]:
    """The models of the inputs by their names."""
    return {
        name: load(folder, device=inputs.device, precision=precision)
        for name, folder in inputs.folders_by_name().items()
    }


def collect_references(pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    """Each pair's target and further references; a Problem where there is no pair."""
    if not pairs:
        raise Problem("There is nothing to analyse: give at least one pair.")
    return [pair.references for pair in pairs]


def require_diffusion(system: Model, name: str, *, wanted: str) -> DiffusionModel:
    """The system of this name, if it is a diffusion model; else a Problem that says what was wanted of it."""
    if not isinstance(system, DiffusionModel):
        raise Problem(f"{wanted} is that of a diffusion model, and {name} is none: leave it out.")
    return system


def find_setting(system: Model, name: str, settings: Sequence[str], *, wanted: str) -> str:
    """The first of the settings that this system's generation has; else a Problem."""
    found = next((setting for setting in settings if hasattr(system.generation_config, setting)), None)
    if found is None:
        raise Problem(f"{wanted}, but {name} has no setting {' or '.join(settings)}: leave it out.")
    return found


def known_settings(system: Model, **settings: Any) -> dict[str, Any]:
    """Those of the settings that the system's generation has."""
    return {name: value for name, value in settings.items() if hasattr(system.generation_config, name)}


def draw_samples(
    system: Model,
    pairs: Sequence[Pair],
    *,
    count: int = 1,
    seed: int = 0,
    batch: int = 64,
    trace: bool = False,
    settings: Settings | None = None,
) -> list[GenerationOutput]:
    """What the system makes of the pairs' sources from the seeds `seed`, `seed` + 1, …, `count` in all."""
    if count < 1:
        raise Problem(f"At least 1 sample must be drawn, not {count}.")
    collect_references(pairs)  # refuses none
    sources = [pair.src for pair in pairs]
    return [
        system.generate(sources, seed=seed + number, batch=batch, trace=trace, **(settings or {}))
        for number in range(count)
    ]


def score_samples(samples: Sequence[Sequence[str]], pairs: Sequence[Pair]) -> ScoreColumns:
    """The columns bleu (the samples' mean), div_4 and self_bleu."""
    references = collect_references(pairs)
    together = list(zip(*samples, strict=True))
    quality = fmean(bleu(texts, references).score for texts in samples)
    return {"bleu": quality} | diversity_scores(together)


def diversity_scores(candidates: Sequence[Sequence[str]]) -> ScoreColumns:
    """The columns div_4 and self_bleu of the texts of each source; none where there are no two."""
    different = {"div_4": div_4(candidates), "self_bleu": self_bleu(candidates)}
    return {name: score.score if score else None for name, score in different.items()}


def signature(models: Models, pairs: Sequence[Pair], settings: Settings, **facts: object) -> str:
    """How the scores of `score_samples` were made: sacrebleu's signature, and what decided the texts."""
    made = bleu(["a"] * len(pairs), collect_references(pairs)).signature
    shown = [f"{name}:{fact}" for name, fact in ({"sentences": len(pairs)} | facts).items()]
    return "|".join(
        [made, *shown, *(_generation_signature(name, each, settings) for name, each in models.items())]
    )


def _generation_signature(name: str, system: Model, settings: Settings) -> str:
    """What is set of a system's generation, of what decides how long and how often it writes."""
    names = ("steps", "stop_early", "iterations", "noise_beam", "length_beam", "samples", "beam", "select")
    own = {
        each: getattr(system.generation_config, each)
        for each in names
        if hasattr(system.generation_config, each)
    }
    chosen = own | known_settings(system, **settings)
    return f"{name}:" + ",".join(f"{each}={value}" for each, value in chosen.items())


def plot_by_model(
    figure: Any, rows: Sequence[ResultRow], *, x: str, label: str, columns: Sequence[str]
) -> None:
    """Draw a panel for each column that has values, with a line a model over the column x, and one legend."""
    shown = [column for column in columns if any(row[column] is not None for row in rows)]
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    models = list(dict.fromkeys(str(row["model"]) for row in rows))
    for axes, column in zip(panels, shown, strict=True):
        # A model without values keeps its place, so that the next one looks the same in every panel.
        lines: dict[str, tuple[list[Any], list[Any]]] = {model: ([], []) for model in models}
        for row in (row for row in rows if row[column] is not None):
            xs, ys = lines[str(row["model"])]
            xs.append(row[x])
            ys.append(row[column])
        plot_lines(axes, lines, x=label, y=LABELS.get(column, column.replace("_", " ")))
    if len(models) > 1:
        for axes in panels:
            axes.get_legend().remove()
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
