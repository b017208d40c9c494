"""The result table of an experiment: the paper's numbers, ours, and their rank correlation.

Ours are means over the seeds, with ± the sample standard deviation (n − 1) for several seeds. The rank
correlation (Spearman's ρ, Kendall's τ) is that of the first measure that the paper reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from noise2text.experiments.experiment import Arm, Experiment
from noise2text.experiments.measures import MEASURES
from noise2text.experiments.rank_correlation import kendall, rank_from_best, spearman
from noise2text.metrics.comparison import format_markdown_table
from noise2text.metrics.score_table import escape_latex

__all__ = ["tabulate", "to_latex", "to_markdown"]


def tabulate(experiment: Experiment, records: Sequence[Mapping[str, Any]], *, scale: str) -> dict[str, Any]:
    """All numbers of the table, ready for JSON, from the records of each arm and seed."""
    rows = [_row(experiment, arm, [r for r in records if r["arm"] == arm.name]) for arm in experiment.arms]
    signatures = {name: text for record in records for name, text in record.get("signatures", {}).items()}
    return {
        "experiment": experiment.name,
        "paper": experiment.paper,
        "table": experiment.table,
        "summary": experiment.summary,
        "claim": experiment.claim,
        "metric_note": experiment.metric_note,
        "scale": scale,
        "seeds": sorted({record["seed"] for record in records}),
        "sentences": max((record["sentences"] for record in records if "sentences" in record), default=0),
        "measures": list(experiment.measures),
        "rows": rows,
        "agreement": _agreement(experiment, rows),
        "signatures": {name: signatures[name] for name in experiment.measures if name in signatures},
    }


def _row(experiment: Experiment, arm: Arm, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    complete = [record["numbers"] for record in records if "numbers" in record]
    known = [
        name for name in experiment.measures if complete and all(name in numbers for numbers in complete)
    ]
    values = {name: [float(numbers[name]) for numbers in complete] for name in known}
    return {
        "arm": arm.name,
        "paper": dict(arm.paper),
        "means": {name: fmean(own) for name, own in values.items()},
        "spreads": {name: stdev(own) for name, own in values.items() if len(own) > 1},
        "failures": [f"seed {r['seed']}: {r['error']}" for r in records if "error" in r],
    }


def _agreement(experiment: Experiment, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Both rankings, ρ and τ for the first measure that the paper reports; for BLEU also our exact match."""
    theirs = next(
        (name for name in experiment.measures if any(name in arm.paper for arm in experiment.arms)), None
    )
    found = []
    for ours in (theirs, "exact") if theirs == "bleu" and "exact" in experiment.measures else (theirs,):
        both = [row for row in rows if theirs in row["paper"] and ours in row["means"]]
        if theirs is None or ours is None or len(both) < 2:
            continue
        first, second = ([row["paper"][theirs] for row in both], [row["means"][ours] for row in both])
        found.append(
            {
                "paper": theirs,
                "ours": ours,
                "arms": [row["arm"] for row in both],
                "paper_ranks": rank_from_best(first, lower_is_better=MEASURES[theirs].lower_is_better),
                "our_ranks": rank_from_best(second, lower_is_better=MEASURES[ours].lower_is_better),
                "spearman": spearman(first, second),
                "kendall": kendall(first, second),
            }
        )
    return found


def to_markdown(found: Mapping[str, Any]) -> str:
    """The table as a Markdown page."""
    seeds = len(found["seeds"])
    parts = [
        f"# {found['experiment']}: {found['paper']}, {found['table']}",
        f"{found['summary']} The paper: {found['claim']}",
        format_markdown_table(_table_rows(found)),
        "\n".join(_agreements(found)),
        "\n".join(_failures(found)),
        f"Scale {found['scale']}, {seeds} seed{'s' if seeds > 1 else ''}, {found['sentences']:,} test texts"
        f"{', mean ± standard deviation' if seeds > 1 else ''}. The paper's numbers: {found['metric_note']}",
        "\n".join(f"- {MEASURES[name].label}: `{text}`" for name, text in found["signatures"].items()),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def to_latex(found: Mapping[str, Any]) -> str:
    """The table as a LaTeX tabular."""
    head, *rows = [[escape_latex(cell).replace("±", r"$\pm$") for cell in row] for row in _table_rows(found)]
    lines = [" & ".join(row) + r" \\" for row in (head, *rows)]
    columns = "l" + "r" * (len(head) - 1)
    body = [lines[0], r"\hline", *lines[1:]]
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", *body, r"\end{tabular}"]) + "\n"


def _table_rows(found: Mapping[str, Any]) -> list[list[str]]:
    """The header, and one row of cells per arm."""
    rows, measures = found["rows"], found["measures"]
    reported = [name for name in measures if any(name in row["paper"] for row in rows)]
    ranks = _ranks_by_arm(found)
    ranked = ["rank, paper", "rank, ours"] if ranks else []
    head = ["arm", *(f"{MEASURES[name].label}, paper" for name in reported)]
    lines = [[*head, *(MEASURES[name].label for name in measures), *ranked]]
    for row in rows:
        paper = [_format_value(name, row["paper"].get(name)) for name in reported]
        lines.append(
            [
                row["arm"],
                *paper,
                *_measured_cells(row, measures),
                *(ranks.get(row["arm"], ("", "")) if ranked else ()),
            ]
        )
    return lines


def _measured_cells(row: Mapping[str, Any], measures: Sequence[str]) -> list[str]:
    if not row["means"]:
        return ["failed", *[""] * (len(measures) - 1)]
    spreads = {name: f" ± {_format_value(name, value)}" for name, value in row["spreads"].items()}
    return [_format_value(name, row["means"].get(name)) + spreads.get(name, "") for name in measures]


def _ranks_by_arm(found: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    if not found["agreement"]:
        return {}
    first = found["agreement"][0]
    both = zip(first["paper_ranks"], first["our_ranks"], strict=True)
    return {arm: (str(p), str(o)) for arm, (p, o) in zip(first["arms"], both, strict=True)}


def _agreements(found: Mapping[str, Any]) -> list[str]:
    if not found["agreement"]:
        return ["The paper gives no numbers to rank."]
    return [
        f"Our {MEASURES[own['ours']].label} against the paper's {MEASURES[own['paper']].label}: "
        f"Spearman's ρ {_format_correlation(own['spearman'])}, "
        f"Kendall's τ {_format_correlation(own['kendall'])}."
        for own in found["agreement"]
    ]


def _failures(found: Mapping[str, Any]) -> list[str]:
    return [f"- {row['arm']} failed, {why}" for row in found["rows"] for why in row["failures"]]


def _format_correlation(value: float | None) -> str:
    return "undefined (all equal)" if value is None else f"{value:.2f}"


def _format_value(measure: str, value: float | None) -> str:
    return "" if value is None else f"{value:.{MEASURES[measure].digits}f}"
