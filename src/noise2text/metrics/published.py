"""The papers' reported results, to be shown beside your own and never mixed with them.

published.toml contains the printed tables. This package did not measure these numbers: every row names the
paper, the table and what the metric is, because "BLEU" means something different in each paper.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from noise2text.core.errors import Problem

__all__ = ["PublishedResult", "PublishedScore", "published", "tabulate_published"]


@dataclass(frozen=True)
class PublishedScore:
    """One number of a paper, in percent or in its own unit, and what the metric is."""

    metric: str
    score: float
    about: str


@dataclass(frozen=True)
class PublishedResult:
    """One row of a paper's table: one system on one task."""

    paper: str
    table: str
    task: str
    system: str
    setting: str  # how it generated, e.g. b = 10; empty if the table does not say
    scores: tuple[PublishedScore, ...]
    note: str
    second_hand: bool = False  # taken from another paper than the system's own

    @property
    def where(self) -> str:
        """The paper, the table if it is known, and whether the number is second-hand."""
        table = f", table {self.table}" if self.table else ""
        return f"{self.paper}{table}{' (second-hand)' if self.second_hand else ''}"


def published(task: str | None = None) -> list[PublishedResult]:
    """All reported rows, or those of one task."""
    rows = _rows()
    tasks = list(dict.fromkeys(row.task for row in rows))
    if task is not None and task not in tasks:
        raise Problem(f"There are no published rows for the task {task!r}; there are for {', '.join(tasks)}.")
    return [row for row in rows if task in (None, row.task)]


def tabulate_published(rows: Sequence[PublishedResult]) -> list[list[str]]:
    """A header and one line of cells per row, with a column for each metric of any row."""
    metrics = list(dict.fromkeys(score.metric for row in rows for score in row.scores))
    lines = [["as reported", "how", *metrics, "where"]]
    for row in rows:
        own = {score.metric: f"{score.score:.2f}" for score in row.scores}
        lines.append([row.system, row.setting, *(own.get(metric, "") for metric in metrics), row.where])
    return lines


@cache
def _rows() -> list[PublishedResult]:
    text = files("noise2text.metrics").joinpath("published.toml").read_text(encoding="utf-8")
    return [row for table in tomllib.loads(text)["table"] for row in _parse_table(table)]


def _parse_table(table: dict[str, Any]) -> list[PublishedResult]:
    """The rows of one table, without the scores that it does not report."""
    results = []
    for system, setting, *values in table["rows"]:
        columns = zip(table["metrics"], values, table["scale"], table["about"], strict=True)
        scores = tuple(
            PublishedScore(metric, round(value * scale, 4), about)
            for metric, value, scale, about in columns
            if value != "-"
        )
        where = (table["paper"], table["number"], table["task"])
        results.append(
            PublishedResult(
                *where,
                system=system,
                setting=setting,
                scores=scores,
                note=table["note"],
                second_hand=table.get("second_hand", False),
            )
        )
    return results
