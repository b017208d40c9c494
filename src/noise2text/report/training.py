"""How training went: the curves of all runs, those that one looks at first in front."""

from __future__ import annotations

from pathlib import Path

from noise2text.analysis.curves import curves, read_metrics
from noise2text.analysis.finding import Finding
from noise2text.core.errors import Problem
from noise2text.report.drawing import figures
from noise2text.report.evidence import Evidence
from noise2text.report.markup import Html, Section, details, joined, note

__all__ = ["training"]

LEADING = ("loss", "valid_loss", "valid_bleu", "valid_exact", "nll-padding")


def training(evidence: Evidence) -> Section:
    """The curves of the runs that have any; a run without says why."""
    silent = {each.name: _silence(each.folder) for each in evidence.subjects}
    heard = evidence.only([each for each in evidence.subjects if silent[each.name] is None])
    notes = [note(line) for line in silent.values() if line is not None]
    body = joined(*notes, _drawn(curves(heard.inputs())) if heard.subjects else "")
    return Section("curves", "Training", body)


def _silence(folder: Path) -> str | None:
    """Why a run has no curves; none if it has."""
    try:
        read_metrics(folder)
    except Problem as problem:
        return str(problem)
    return None


def _drawn(found: list[Finding]) -> Html:
    leading = [each for each in found if each.name.removeprefix("curve-") in LEADING]
    rest = [each for each in found if each not in leading]
    more = details(f"More curves ({len(rest)})", figures(rest, prefix="curves-more")) if rest else ""
    return joined(figures(leading, prefix="curves"), more)
