"""A comparison of several systems: speed, quality, diversity, copying and significance in one table.

All systems have the same sources and metrics. The others are tested against the first. The last row is the
score of copying the source.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from noise2text.metrics.diversity import dist_1, div_4, self_bleu
from noise2text.metrics.evaluate import LABELS, METRICS_OF_REPORTS, References, evaluate
from noise2text.metrics.published import PublishedResult, tabulate_published
from noise2text.metrics.significance import paired_bootstrap

__all__ = [
    "SystemOutput",
    "evaluate_systems",
    "format_markdown_table",
    "format_published",
    "to_markdown",
    "to_tsv",
]

DIVERSITY = {"dist_1": "dist-1", "div_4": "div-4", "self_bleu": "self-BLEU"}


@dataclass(frozen=True)
class SystemOutput:
    """A system's text for each source, the candidates it chose from, and the time for all of them."""

    texts: list[str]
    candidates: list[list[str]]
    seconds: float


def evaluate_systems(
    systems: Mapping[str, SystemOutput],
    references: References,
    sources: Sequence[str],
    *,
    n_resamples: int = 1000,
) -> dict[str, Any]:
    """All numbers of the comparison as JSON values: {"systems": {name: …}, "copy_source": …}."""
    tests = paired_bootstrap(
        {name: answers.texts for name, answers in systems.items()}, references, n_resamples=n_resamples
    )
    evaluated, copied = {}, {}
    for name, answers in systems.items():
        quality = evaluate(answers.texts, references, sources, metrics=METRICS_OF_REPORTS)
        copied = quality.pop("copy_source")
        evaluated[name] = {
            "sentences_per_second": len(sources) / answers.seconds,
            "seconds": answers.seconds,
            **quality,
            "candidates": fmean(len(entry) for entry in answers.candidates),
            **_diversity(answers),
            "significance": [dataclasses.asdict(test) for test in tests[name]],
        }
    return {"sentences": len(sources), "systems": evaluated, "copy_source": copied}


def _diversity(answers: SystemOutput) -> dict[str, Any]:
    scores = (dist_1(answers.texts), div_4(answers.candidates), self_bleu(answers.candidates))
    return {score.name: {"score": score.score, "signature": score.signature} for score in scores if score}


def to_markdown(result: Mapping[str, Any], rows: Sequence[PublishedResult] = ()) -> str:
    """The comparison in Markdown: the table, the tests, the settings, the signatures."""
    systems = result["systems"]
    first = next(iter(systems))
    parts = [
        f"# Comparison on {result['test']}, {result['sentences']:,} sentences",
        format_markdown_table(_scores(result)),
        f"Sentences per second: all of generate, without loading the model; {result['speed']}. The scores "
        "are percentages, and so is copied, the share of texts that equal their source. div-4 and self-BLEU "
        "compare the candidates of one source, if a system has several.",
        f"## Differences to {first}",
        format_markdown_table(_tests(systems)),
        "Paired bootstrap with 95 % intervals. \\* marks p < 0.05, not corrected for multiple comparisons.",
        "## What was set",
        "\n".join(_settings(systems)),
        "## How the numbers were made",
        "\n".join(_signatures(systems)),
    ]
    return "\n\n".join([*parts, *format_published(rows)]) + "\n"


def _scores(result: Mapping[str, Any]) -> list[list[str]]:
    systems = result["systems"]
    quality = [name for name in LABELS if name in result["copy_source"]]
    labels = [*(LABELS[name] for name in quality), *DIVERSITY.values()]
    lines = [["system", "sentences/s", *labels, "candidates", "copied"]]
    for name, entry in systems.items():
        scores = [_format_score(entry.get(metric)) for metric in (*quality, *DIVERSITY)]
        speed = f"{entry['sentences_per_second']:.1f}"
        lines.append([name, speed, *scores, f"{entry['candidates']:.3g}", f"{100 * entry['copied']:.2f}"])
    copy = [_format_score(result["copy_source"][metric]) for metric in quality]
    lines.append(["(copying the source)", "", *copy, *[""] * len(DIVERSITY), "", "100.00"])
    return lines


def _format_score(score: Mapping[str, Any] | None) -> str:
    return "" if score is None else f"{score['score']:.2f}"


def _tests(systems: Mapping[str, Any]) -> list[list[str]]:
    lines = [["system", "metric", "score", "interval", "difference", "p"]]
    base = next(iter(systems.values()))["significance"]
    for name, entry in systems.items():
        for test, baseline in zip(entry["significance"], base, strict=True):
            cells = [name, test["metric"], f"{test['score']:.2f}", f"± {test['interval']:.2f}"]
            if test["p"] is None:
                lines.append([*cells, "", ""])
                continue
            mark = " *" if test["p"] < 0.05 else ""
            lines.append([*cells, f"{test['score'] - baseline['score']:+.2f}", f"{test['p']:.4f}{mark}"])
    return lines


def _settings(systems: Mapping[str, Any]) -> list[str]:
    return [f"- {name}: {entry['made_by']}" for name, entry in systems.items()]


def _signatures(systems: Mapping[str, Any]) -> list[str]:
    """One line per signature; systems may differ in the number of sources that could be counted."""
    lines: dict[str, None] = {}
    for name, label in (LABELS | DIVERSITY).items():
        found = [entry[name]["signature"] for entry in systems.values() if name in entry]
        lines |= {f"- {label}: `{signature}`": None for signature in found}
    for entry in systems.values():
        for test in entry["significance"]:
            lines[f"- paired bootstrap, {test['metric']}: `{test['signature']}`"] = None
    return list(lines)


def format_published(rows: Sequence[PublishedResult]) -> list[str]:
    """For each task a heading, the table of the papers' numbers, and what their metrics are."""
    return [part for task in dict.fromkeys(row.task for row in rows) for part in _format_task(task, rows)]


def _format_task(task: str, rows: Sequence[PublishedResult]) -> list[str]:
    rows = [row for row in rows if row.task == task]
    notes: dict[str, None] = {}
    for row in rows:
        notes[f"- {row.where}: {row.note}"] = None
        notes |= {f"- {row.where}, {own.metric}: {own.about}": None for own in row.scores if own.about}
    return [
        f"## {task}, as reported",
        format_markdown_table(tabulate_published(rows)),
        "Numbers of the papers, not measured here. What they are:",
        "\n".join(notes),
    ]


def format_markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns also line up in a terminal; the first row is the header."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    rule = "-|-".join("-" * width for width in widths)
    return "\n".join([f"| {lines[0]} |", f"|-{rule}-|", *(f"| {line} |" for line in lines[1:])])


def to_tsv(systems: Mapping[str, SystemOutput], references: References, sources: Sequence[str]) -> str:
    """One line per source: the source, its first reference, and the text of each system."""
    rows = [["source", "reference", *systems]]
    answers = zip(*(entry.texts for entry in systems.values()), strict=True)
    for source, entry, texts in zip(sources, references, answers, strict=True):
        rows.append([source, entry[0], *texts])
    return "".join("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)
