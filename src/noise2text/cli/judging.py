"""The command that judges texts."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from noise2text.cli.options import JsonOption, app

__all__ = ["evaluate"]


class Format(StrEnum):
    """How an evaluation is printed."""

    table = "table"
    json = "json"
    csv = "csv"
    latex = "latex"


@app.command()
def evaluate(
    hyp: Annotated[str, typer.Option(help="What was generated: one text a line, or JSON Lines.")],
    ref: Annotated[
        str, typer.Option(help="The references: one text a line, or JSON Lines with trg and refs.")
    ],
    src: Annotated[
        str | None, typer.Option(help="The sources: what copying them scores, SARI, iBLEU, COMET.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(help="Names with commas, e.g. bleu,ter,rouge-l,bertscore=FOLDER."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Another system's texts: is the difference significant?")
    ] = None,
    confidence: Annotated[
        bool, typer.Option("--confidence", help="Add intervals of 95 % by bootstrap.")
    ] = False,
    candidates: Annotated[
        str | None,
        typer.Option(help="Several samples a source, for diversity: JSON Lines with candidates."),
    ] = None,
    format: Annotated[Format, typer.Option(help="table, json, csv or latex (booktabs).")] = Format.table,
    as_json: JsonOption = False,
) -> None:
    """Score texts; every score says how it was made."""
    from noise2text.commands.evaluate import EvaluationFiles, evaluate_files
    from noise2text.metrics import score_table
    from noise2text.metrics.evaluate import DEFAULT_METRICS, find_metrics

    chosen = DEFAULT_METRICS if metrics is None else find_metrics(metrics)
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
