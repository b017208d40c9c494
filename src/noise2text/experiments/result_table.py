"""The result table of an experiment: the paper's numbers, ours, and their rank correlation.

Ours are means over the seeds, with ± the sample standard deviation (n − 1) for several seeds. There is a rank
correlation (Spearman's ρ, Kendall's τ) for each measure that the paper reports, with the same measure of ours
and with those that may stand for it (`STAND_INS`); the ranks of the table are those of the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from noise2text.experiments.experiment import Arm, Experiment
from noise2text.experiments.measures import MEASURES
from noise2text.experiments.rank_correlation import kendall, rank_from_best, spearman
from noise2text.metrics.comparison import format_markdown_table
from noise2text.metrics.model_based import MODEL_METRICS
from noise2text.metrics.score_table import escape_latex

__all__ = ["tabulate", "to_latex", "to_markdown"]


STAND_INS: Mapping[str, tuple[str, ...]] = {
    "bleu": ("exact_match",),
    "bleu-fairseq": ("bleu", "exact_match"),
    "bleu-diffuseq": ("bleu", "exact_match"),
    "rouge-l-torchmetrics": ("rouge-l",),
    "dist_1_diffuseq": ("dist_1",),
    "div_4_diffuseq": ("div_4",),
    "self_bleu_diffuseq": ("self_bleu",),
}
"""Measures of ours that are also compared with a measure of the paper, if the table has them."""


def tabulate(
    experiment: Experiment,
    records: Sequence[Mapping[str, Any]],
    *,
    scale: str,
    more: Sequence[str] = (),
) -> dict[str, Any]:
    """All numbers of the table, ready for JSON, from the records of each arm and seed.

    `more` are measures that the user added.
    """
    measures = tuple(dict.fromkeys((*experiment.measures_at(scale), *more)))
    rows = [_row(measures, arm, [r for r in records if r["arm"] == arm.name]) for arm in experiment.arms]
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
        "preset": experiment.chosen_preset,
        "measures": list(measures),
        "rows": rows,
        "agreement": _compare_rankings(rows),
        "signatures": _signatures(measures, records),
    }


def _signatures(measures: Sequence[str], records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The signature of each measure; where arms differ, all of them."""
    found = {
        name: dict.fromkeys(
            record["signatures"][name] for record in records if name in record.get("signatures", {})
        )
        for name in measures
    }
    return {name: " or ".join(own) for name, own in found.items() if own}


def _row(measures: Sequence[str], arm: Arm, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    complete = [record["numbers"] for record in records if "numbers" in record]
    known = [name for name in measures if complete and all(name in numbers for numbers in complete)]
    values = {name: [float(numbers[name]) for numbers in complete] for name in known}
    return {
        "arm": arm.name,
        "paper": dict(arm.paper),
        "means": {name: fmean(own) for name, own in values.items()},
        "spreads": {name: stdev(own) for name, own in values.items() if len(own) > 1},
        "seeds": len(complete),
        "failures": [f"seed {r['seed']}: {r['error']}" for r in records if "error" in r],
    }


def _compare_rankings(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Both rankings, ρ and τ for each measure of the paper and each of ours that may stand for it."""
    found = []
    for theirs in _list_paper_measures(rows):
        for ours in (theirs, *STAND_INS.get(theirs, ())):
            both = [row for row in rows if theirs in row["paper"] and ours in row["means"]]
            if len(both) > 1:
                found.append(_compare_ranks(theirs, ours, both))
    return found


def _list_paper_measures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The measures that the paper reports, in its order."""
    return list(dict.fromkeys(name for row in rows for name in row["paper"]))


def _compare_ranks(theirs: str, ours: str, both: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first, second = [row["paper"][theirs] for row in both], [row["means"][ours] for row in both]
    return {
        "paper": theirs,
        "ours": ours,
        "arms": [row["arm"] for row in both],
        "paper_ranks": rank_from_best(first, lower_is_better=MEASURES[theirs].lower_is_better),
        "our_ranks": rank_from_best(second, lower_is_better=MEASURES[ours].lower_is_better),
        "spearman": spearman(first, second),
        "kendall": kendall(first, second),
    }


def to_markdown(found: Mapping[str, Any]) -> str:
    """The table as a Markdown page."""
    seeds = len(found["seeds"])
    scale = f"{found['scale']}, {found['preset']}" if found["preset"] else found["scale"]
    parts = [
        f"# {found['experiment']}: {found['paper']}, {found['table']}",
        f"{found['summary']} The paper: {found['claim']}",
        format_markdown_table(_table_rows(found)),
        "\n".join(_describe_agreement(found)),
        "\n".join([*_name_failures(found), *_name_unfinished_arms(found)]),
        f"Scale {scale}, {seeds} seed{'s' if seeds > 1 else ''}, {found['sentences']:,} test texts"
        f"{', mean ± standard deviation' if seeds > 1 else ''}. The paper's numbers: {found['metric_note']}",
        "\n".join(
            [f"- {MEASURES[name].label}: `{text}`" for name, text in found["signatures"].items()]
            + _name_missing_measures(found)
        ),
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
    rows, measures = found["rows"], _list_found_measures(found)
    reported = _list_paper_measures(rows)
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


def _list_found_measures(found: Mapping[str, Any]) -> list[str]:
    """The measures that some row has, or all of them if none has any."""
    measured = [name for name in found["measures"] if any(name in row["means"] for row in found["rows"])]
    return measured or list(found["measures"])


def _name_missing_measures(found: Mapping[str, Any]) -> list[str]:
    """What to do about the measures of models that were not named."""
    return [
        f"- {MEASURES[name].label} is not measured: `--metrics {name}=FOLDER` says with which model."
        for name in found["measures"]
        if name in MODEL_METRICS and name not in found["signatures"]
    ]


def _measured_cells(row: Mapping[str, Any], measures: Sequence[str]) -> list[str]:
    if not row["means"]:
        return ["failed" if row["failures"] else "not run", *[""] * (len(measures) - 1)]
    spreads = {name: f" ± {_format_value(name, value)}" for name, value in row["spreads"].items()}
    return [_format_value(name, row["means"].get(name)) + spreads.get(name, "") for name in measures]


def _ranking(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The comparison whose ranks are in the table: the first that is defined."""
    defined = [own for own in found["agreement"] if own["spearman"] is not None]
    ranking: Mapping[str, Any] = (defined or found["agreement"])[0]
    return ranking


def _ranks_by_arm(found: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    if not found["agreement"]:
        return {}
    first = _ranking(found)
    both = zip(first["paper_ranks"], first["our_ranks"], strict=True)
    return {arm: (str(p), str(o)) for arm, (p, o) in zip(first["arms"], both, strict=True)}


def _describe_agreement(found: Mapping[str, Any]) -> list[str]:
    if not found["agreement"]:
        return ["The paper gives no numbers to rank."]
    ranked = " (the ranks in the table)" if len(found["agreement"]) > 1 else ""
    return [
        f"Our {MEASURES[own['ours']].label} against the paper's {MEASURES[own['paper']].label}: "
        f"Spearman's ρ {_format_correlation(own['spearman'])}, "
        f"Kendall's τ {_format_correlation(own['kendall'])}{ranked if own is _ranking(found) else ''}."
        for own in found["agreement"]
    ]


def _name_failures(found: Mapping[str, Any]) -> list[str]:
    return [f"- {row['arm']} failed, {why}" for row in found["rows"] for why in row["failures"]]


def _name_unfinished_arms(found: Mapping[str, Any]) -> list[str]:
    """The rows whose mean is over fewer seeds than the others'."""
    seeds = len(found["seeds"])
    return [
        f"- {row['arm']} has {row['seeds']} of {seeds} seeds."
        for row in found["rows"]
        if 0 < row["seeds"] < seeds
    ]


def _format_correlation(value: float | None) -> str:
    return "undefined (all equal)" if value is None else f"{value:.2f}"


def _format_value(measure: str, value: float | None) -> str:
    return "" if value is None else f"{value:.{MEASURES[measure].digits}f}"
