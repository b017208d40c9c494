"""`noise2text evaluate`: score texts."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from noise2text.cli.options import FieldsOption, JsonOption, app

__all__ = ["evaluate"]


class Format(StrEnum):
    """The formats in which scores are printed."""

    table = "table"
    json = "json"
    csv = "csv"
    latex = "latex"


@app.command()
def evaluate(
    hyp: Annotated[str, typer.Option(help="The generated texts: one per line, or JSON Lines.")],
    ref: Annotated[str, typer.Option(help="The references: one per line, or JSON Lines with trg and refs.")],
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
    format: Annotated[Format, typer.Option(help="table, json, csv or latex (booktabs).")] = Format.table,
    as_json: JsonOption = False,
) -> None:
    """Score texts; every score comes with its signature."""
    from noise2text.commands.evaluate import EvaluationFiles, evaluate_files
    from noise2text.data.fields import with_fields
    from noise2text.metrics import score_table
    from noise2text.metrics.evaluate import DEFAULT_METRICS, find_metrics

    chosen = DEFAULT_METRICS if metrics is None else find_metrics(metrics)
    ref, src = with_fields(ref, fields), None if src is None else with_fields(src, fields)
    files = EvaluationFiles(hyp, ref, src, against=against, candidates=candidates)
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
