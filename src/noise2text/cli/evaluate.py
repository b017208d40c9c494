"""`noise2text evaluate`: score texts."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from noise2text.cli.options import DeviceOption, FieldsOption, JsonOption, SeedOption, SetOption, app
from noise2text.core.errors import Problem

__all__ = ["evaluate"]


class Format(StrEnum):
    """The formats in which scores are printed."""

    table = "table"
    json = "json"
    csv = "csv"
    latex = "latex"


@app.command()
def evaluate(
    ref: Annotated[str, typer.Option(help="The references: one per line, or JSON Lines with trg and refs.")],
    hyp: Annotated[str | None, typer.Option(help="The generated texts: one per line, or JSON Lines.")] = None,
    src: Annotated[
        str | None, typer.Option(help="The sources, for the scores of copying, SARI, iBLEU and COMET.")
    ] = None,
    fields: FieldsOption = None,
    metrics: Annotated[
        str | None,
        typer.Option(help="Metrics, separated by commas, e.g. bleu,ter,rouge-l,bertscore=FOLDER."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Another system's texts, for a significance test."),
    ] = None,
    confidence: Annotated[
        bool, typer.Option("--confidence", help="Add 95 % bootstrap confidence intervals.")
    ] = False,
    candidates: Annotated[
        str | None,
        typer.Option(help="Several texts per source, for diversity: JSON Lines with candidates."),
    ] = None,
    likelihood: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Score this model instead, by its likelihood of the pairs in --ref."
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option(help="For --likelihood: diffusion steps that are evaluated per pair.")
    ] = 32,
    assignments: SetOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = None,
    format: Annotated[Format, typer.Option(help="table, json, csv or latex (booktabs).")] = Format.table,
    as_json: JsonOption = False,
) -> None:
    """Score texts, or a model by its likelihood; every score comes with its signature."""
    from noise2text.commands.display import show_elapsed
    from noise2text.commands.evaluate import EvaluationFiles, evaluate_files
    from noise2text.data.fields import with_fields
    from noise2text.metrics import score_table
    from noise2text.metrics.evaluate import DEFAULT_METRICS, find_metrics

    if likelihood is not None:
        if hyp or src or against or candidates or metrics:
            raise Problem(
                "--likelihood takes the pairs in --ref and no generated texts: leave out --hyp, --src, "
                "--against, --candidates and --metrics."
            )
        _evaluate_likelihood(
            likelihood,
            with_fields(ref, fields),
            samples=samples,
            assignments=assignments,
            seed=seed,
            device=device,
            as_json=as_json or format is Format.json,
        )
        return
    if hyp is None:
        raise Problem("Give the generated texts with --hyp, or a model with --likelihood MODEL.")
    chosen = DEFAULT_METRICS if metrics is None else find_metrics(metrics)
    ref, src = with_fields(ref, fields), None if src is None else with_fields(src, fields)
    files = EvaluationFiles(hyp, ref, src, against=against, candidates=candidates)
    with show_elapsed("scoring"):
        result = evaluate_files(files, metrics=chosen, confidence=confidence)
    if as_json or format is Format.json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return
    shown = {
        Format.table: score_table.to_text,
        Format.csv: score_table.to_csv,
        Format.latex: score_table.to_latex,
    }
    print(shown[format](score_table.collect_score_rows(result)), end="")


def _evaluate_likelihood(
    model: str,
    corpus: str,
    *,
    samples: int,
    assignments: list[str] | None,
    seed: int,
    device: str | None,
    as_json: bool,
) -> None:
    """Print the bound of a model, term by term."""
    from noise2text.commands.display import show_elapsed
    from noise2text.core.command_line import parse_assignments, parse_numbers
    from noise2text.core.config import apply_overrides
    from noise2text.data.corpus import read_pairs
    from noise2text.metrics.comparison import format_markdown_table
    from noise2text.models.folder import load

    pairs = list(read_pairs(corpus))
    overrides: dict[str, Any] = dict(parse_assignments(assignments))
    if "steps" in overrides:  # of diffusion, which are not those of generation
        overrides["steps"] = parse_numbers(overrides["steps"], "--set steps")[0]
    with show_elapsed(f"computing the likelihood of {len(pairs):,} pairs"):
        loaded = load(model, device=device)
        known = {name: value for name, value in overrides.items() if name != "steps"}
        apply_overrides(loaded.generation_config, known, origin="evaluate --likelihood")
        bound = loaded.likelihood_bound(
            [pair.src for pair in pairs],
            [pair.trg for pair in pairs],
            samples=samples,
            seed=seed,
            **overrides,
        )
    if as_json:
        print(json.dumps(bound.as_json(), indent=2, ensure_ascii=False))
        return
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
