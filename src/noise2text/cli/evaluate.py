"""`noise2text evaluate`: score texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noise2text.cli.folding import find_width
from noise2text.cli.option_groups import OptionGroup
from noise2text.cli.options import (
    FILES,
    PAIRS,
    DeviceOption,
    FieldsOption,
    JsonOption,
    SeedOption,
    SetOption,
    app,
)
from noise2text.core.errors import Problem

if TYPE_CHECKING:
    from noise2text.models.likelihood_bound import LikelihoodBound

__all__ = ["evaluate"]


class Format(StrEnum):
    """The formats in which scores are printed."""

    table = "table"
    json = "json"
    csv = "csv"
    latex = "latex"


class Texts(OptionGroup):
    """The files that are read."""

    panel = FILES
    ref: Annotated[
        str | None, typer.Option(help="The references: one per line, or JSON Lines with trg and refs.")
    ] = None
    hyp: Annotated[str | None, typer.Option(help="The generated texts: one per line, or JSON Lines.")] = None
    src: Annotated[
        str | None, typer.Option(help="The sources, for the scores of copying, SARI, iBLEU and COMET.")
    ] = None
    fields: FieldsOption = None
    against: Annotated[str | None, typer.Option(help="Another system's texts, for a significance test.")] = (
        None
    )
    candidates: Annotated[
        str | None, typer.Option(help="Several texts per source, for diversity: JSON Lines with candidates.")
    ] = None


class Scores(OptionGroup):
    """Which scores are computed, and how they are printed."""

    panel = "Scores"
    metrics: Annotated[
        str | None,
        typer.Option(help="Metrics, separated by commas, e.g. bleu,ter,rouge-l,bertscore=FOLDER."),
    ] = None
    confidence: Annotated[
        bool, typer.Option("--confidence", help="Add 95 % bootstrap confidence intervals.")
    ] = False
    format: Annotated[Format, typer.Option(help="table, json, csv or latex (booktabs).")] = Format.table
    as_json: JsonOption = False


class Likelihood(OptionGroup):
    """A model that is scored by its likelihood instead."""

    panel = "Likelihood of a model"
    likelihood: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Score this model instead, by its likelihood of the pairs in --test."
        ),
    ] = None
    test: Annotated[str | None, typer.Option(help=f"The test pairs: {PAIRS}")] = None
    samples: Annotated[int, typer.Option(help="Diffusion steps that are evaluated per pair.")] = 32
    assignments: SetOption = None
    seed: SeedOption = 0
    device: DeviceOption = None


@app.command()
def evaluate(**options: Annotated[Any, Texts, Scores, Likelihood]) -> None:
    """Score texts, or a model by its likelihood; every score comes with its signature."""
    from noise2text.commands.display import show_elapsed
    from noise2text.commands.evaluate import EvaluationFiles, evaluate_files
    from noise2text.data.corpus_paths import with_fields
    from noise2text.metrics.evaluate import DEFAULT_METRICS, find_metrics

    texts, scores, likelihood = Texts(options), Scores(options), Likelihood(options)
    if likelihood.likelihood is not None:
        _evaluate_likelihood(likelihood.likelihood, likelihood, texts, scores)
        return
    if texts.hyp is None or texts.ref is None or likelihood.test is not None:
        raise Problem(
            "Give generated texts and references, --hyp FILE --ref FILE, or a model and test pairs, "
            "--likelihood MODEL --test FILE."
        )
    files = EvaluationFiles(
        texts.hyp,
        with_fields(texts.ref, texts.fields),
        None if texts.src is None else with_fields(texts.src, texts.fields),
        against=texts.against,
        candidates=texts.candidates,
    )
    metrics = DEFAULT_METRICS if scores.metrics is None else find_metrics(scores.metrics)
    with show_elapsed("scoring"):
        result = evaluate_files(files, metrics=metrics, confidence=scores.confidence)
    _print_scores(result, Format.json if scores.as_json else scores.format)


def _print_scores(result: dict[str, Any], format: Format) -> None:
    from noise2text.metrics import score_table

    if format is Format.json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return
    shown: dict[Format, Callable[..., str]] = {
        Format.table: partial(score_table.to_text, width=find_width()),
        Format.csv: score_table.to_csv,
        Format.latex: score_table.to_latex,
    }
    print(shown[format](score_table.collect_score_rows(result)), end="")


def _evaluate_likelihood(model: str, options: Likelihood, texts: Texts, scores: Scores) -> None:
    """Print the bound of a model on the pairs of the references."""
    from noise2text.commands.display import show_elapsed
    from noise2text.core.command_line import parse_assignments, parse_numbers
    from noise2text.core.config import apply_overrides
    from noise2text.data.corpus import read_pairs
    from noise2text.data.corpus_paths import with_fields
    from noise2text.models.folder import load

    given = (texts.hyp, texts.ref, texts.src, texts.against, texts.candidates, scores.metrics)
    if options.test is None or any(each is not None for each in given):
        raise Problem(
            "--likelihood takes pairs, --test FILE, and no generated texts: leave out --hyp, --ref, --src, "
            "--against, --candidates and --metrics."
        )
    pairs = list(read_pairs(with_fields(options.test, texts.fields)))
    overrides: dict[str, Any] = dict(parse_assignments(options.assignments))
    if "steps" in overrides:  # of diffusion, which are not those of generation
        overrides["steps"] = parse_numbers(overrides["steps"], "--set steps")[0]
    with show_elapsed(f"computing the likelihood of {len(pairs):,} pairs"):
        loaded = load(model, device=options.device)
        known = {name: value for name, value in overrides.items() if name != "steps"}
        apply_overrides(loaded.generation_config, known, origin="evaluate --likelihood")
        bound = loaded.likelihood_bound(
            [pair.src for pair in pairs],
            [pair.trg for pair in pairs],
            samples=options.samples,
            seed=options.seed,
            **overrides,
        )
    if scores.as_json or scores.format is Format.json:
        print(json.dumps(bound.as_json(), indent=2, ensure_ascii=False))
    else:
        _print_bound(bound)


def _print_bound(bound: LikelihoodBound) -> None:
    """Print a bound term by term, and what it is."""
    from noise2text.metrics.comparison import format_markdown_table

    rows = [[name, f"{nats:.4f}"] for name, nats in bound.terms.items()]
    error = "" if bound.standard_error is None else f" ± {bound.standard_error:.4f}"
    rows.append(["sum", f"{bound.nats_per_token:.4f}{error}"])
    print(format_markdown_table([["term", "nats per token"], *rows]))
    kind = "−log p, exact" if bound.is_exact else "an upper bound of −log p"
    counts = f"{len(bound.pair_nats) - bound.num_skipped:,} pairs, {bound.num_tokens:,} tokens"
    skipped = (
        f"; {bound.num_skipped:,} targets left out, which it cannot generate" if bound.num_skipped else ""
    )
    print(f"\n{kind}: {counts}{skipped}\n{bound.signature}")
