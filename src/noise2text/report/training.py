"""The training curves of all runs, the most important ones first."""

from __future__ import annotations

from pathlib import Path

from noise2text.analysis.catalogue import ANALYSES
from noise2text.analysis.curves import read_metrics
from noise2text.analysis.finding import Finding
from noise2text.core.errors import Problem
from noise2text.report.figure_html import figures
from noise2text.report.html import Html, Section, details, join_html, note
from noise2text.report.report_data import ReportData

__all__ = ["show_training"]

LEADING = ("loss", "valid_loss", "valid_bleu", "valid_exact", "nll-padding")


def show_training(data: ReportData) -> Section:
    """The curves of the runs that have any, and for the others the reason."""
    missing = {each.name: _why_no_curves(each.folder) for each in data.runs}
    with_curves = data.restrict_to([each for each in data.runs if missing[each.name] is None])
    notes = [note(line) for line in missing.values() if line is not None]
    curves = ANALYSES["curves"](with_curves.inputs()) if with_curves.runs else []
    return Section("curves", "Training", join_html(*notes, _draw_curves(curves) if curves else ""))


def _why_no_curves(folder: Path) -> str | None:
    """Why a run has no curves; None if it has."""
    try:
        read_metrics(folder)
    except Problem as problem:
        return str(problem)
    return None


def _draw_curves(found: list[Finding]) -> Html:
    found = [each for each in found if _changes(each)]
    leading = [each for each in found if each.name.removeprefix("curve-") in LEADING]
    rest = [each for each in found if each not in leading]
    more = details(f"More curves ({len(rest)})", figures(rest, prefix="curves-more")) if rest else ""
    return join_html(figures(leading, prefix="curves"), more)


def _changes(curve: Finding) -> bool:
    """Whether a line of the figure has two different values; a single point or a flat line says nothing."""
    values: dict[object, set[object]] = {}
    for row in curve.rows:
        if row["value"] is not None:
            values.setdefault(row["run"], set()).add(row["value"])
    return any(len(own) > 1 for own in values.values())
