"""What the analyses that generate texts share: options, samples, scores and panels.

A sample is one text per source; the next sample uses the next seed. Quality is the mean corpus BLEU of the
samples; diversity (div-4, self-BLEU) compares the samples of one source (DiffuSeq, table 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from noise2text.analysis.finding import Finding, ResultRow, plot_lines
from noise2text.analysis.inputs import Inputs
from noise2text.core.command_line import parse_assignments
from noise2text.core.config import Config, option
from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair
from noise2text.metrics.diversity import div_4, self_bleu
from noise2text.metrics.evaluate import bleu
from noise2text.models import DiffusionModel, GenerationOutput, Model
from noise2text.models.folder import load

__all__ = [
    "GenerationOptions",
    "ScoreColumns",
    "analyze_models",
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
ScoreColumns = dict[str, float | int | str | None]  # columns of a result row
LABELS = {"bleu": "BLEU", "div_4": "div-4", "self_bleu": "self-BLEU"}


@dataclass(frozen=True)
class GenerationOptions(Config):
    """The options of every analysis that generates texts."""

    sentences: int = option(200, "how many of the pairs to use, from the first", minimum=1)
    batch: int = option(64, "sentences per batch", minimum=1)
    generation: str = option("", "generation settings, name=value, separated by commas")

    def settings(self) -> dict[str, Any]:
        """The generation settings by name."""
        parts = [part.strip() for part in self.generation.split(",")]
        return parse_assignments([part for part in parts if part])


def load_all(inputs: Inputs, *, precision: str = "auto") -> dict[str, Model]:
    """The models of the inputs by name."""
    return {
        name: load(folder, device=inputs.device, precision=precision)
        for name, folder in inputs.folders_by_name().items()
    }


def analyze_models(
    analysis: Callable[..., Finding], inputs: Inputs, options: GenerationOptions, **more: Any
) -> list[Finding]:
    """The finding of an analysis that generates texts, for the models and pairs of the inputs."""
    found = analysis(
        load_all(inputs),
        inputs.pairs[: options.sentences],
        seed=inputs.seed,
        batch=options.batch,
        settings=options.settings(),
        **more,
    )
    return [found]


def collect_references(pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    """The references of each pair; a Problem if there are no pairs."""
    if not pairs:
        raise Problem("There is nothing to analyse: give at least one pair.")
    return [pair.references for pair in pairs]


def require_diffusion(model: Model, name: str, *, wanted: str) -> DiffusionModel:
    """The model, if it is a diffusion model; else a Problem that names what it was needed for."""
    if not isinstance(model, DiffusionModel):
        raise Problem(f"{wanted} needs a diffusion model, but {name} is not one: leave it out.")
    return model


def find_setting(model: Model, name: str, settings: Sequence[str], *, wanted: str) -> str:
    """The first of these settings that the model's generation config has; a Problem if it has none."""
    found = next((setting for setting in settings if hasattr(model.generation_config, setting)), None)
    if found is None:
        raise Problem(f"{wanted}, but {name} has no setting {' or '.join(settings)}: leave it out.")
    return found


def known_settings(model: Model, **settings: Any) -> dict[str, Any]:
    """Those of the settings that the model's generation config has."""
    return {name: value for name, value in settings.items() if hasattr(model.generation_config, name)}


def draw_samples(
    model: Model,
    pairs: Sequence[Pair],
    *,
    count: int = 1,
    seed: int = 0,
    batch: int = 64,
    trace: bool = False,
    settings: Settings | None = None,
) -> list[GenerationOutput]:
    """The model's outputs for the pairs' sources, one per seed: `seed`, …, `seed + count − 1`."""
    if count < 1:
        raise Problem(f"At least 1 sample must be drawn, not {count}.")
    collect_references(pairs)  # raises if there are no pairs
    sources = [pair.src for pair in pairs]
    return [
        model.generate(sources, seed=seed + number, batch=batch, trace=trace, **(settings or {}))
        for number in range(count)
    ]


def score_samples(samples: Sequence[Sequence[str]], pairs: Sequence[Pair]) -> ScoreColumns:
    """The columns bleu (mean of the samples), div_4 and self_bleu."""
    references = collect_references(pairs)
    samples_by_source = list(zip(*samples, strict=True))
    quality = fmean(bleu(texts, references).score for texts in samples)
    return {"bleu": quality} | diversity_scores(samples_by_source)


def diversity_scores(candidates: Sequence[Sequence[str]]) -> ScoreColumns:
    """The columns div_4 and self_bleu of the texts of each source; None if a source has fewer than two."""
    scores = {"div_4": div_4(candidates), "self_bleu": self_bleu(candidates)}
    return {name: score.score if score else None for name, score in scores.items()}


def signature(models: Models, pairs: Sequence[Pair], settings: Settings, **facts: object) -> str:
    """The signature of `score_samples`: sacrebleu's, and the settings that decided the texts."""
    bleu_signature = bleu(["a"] * len(pairs), collect_references(pairs)).signature
    shown = [f"{name}:{fact}" for name, fact in ({"sentences": len(pairs)} | facts).items()]
    return "|".join(
        [
            bleu_signature,
            *shown,
            *(_generation_signature(name, each, settings) for name, each in models.items()),
        ]
    )


def _generation_signature(name: str, model: Model, settings: Settings) -> str:
    """The generation settings of a model that decide its number of steps and candidates."""
    names = ("steps", "stop_early", "iterations", "noise_beam", "length_beam", "samples", "beam", "select")
    own = {
        each: getattr(model.generation_config, each)
        for each in names
        if hasattr(model.generation_config, each)
    }
    chosen = own | known_settings(model, **settings)
    return f"{name}:" + ",".join(f"{each}={value}" for each, value in chosen.items())


def plot_by_model(
    figure: Any, *, rows: Sequence[ResultRow], x: str, label: str, columns: Sequence[str]
) -> None:
    """Draw one panel per column that has values, with one line per model over column x, and one legend."""
    shown = [column for column in columns if any(row[column] is not None for row in rows)]
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    models = list(dict.fromkeys(str(row["model"]) for row in rows))
    for axes, column in zip(panels, shown, strict=True):
        # A model without values keeps its style, so that every model looks the same in all panels.
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
