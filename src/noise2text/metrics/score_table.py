"""An evaluation as a table: aligned text, CSV, or LaTeX with booktabs.

Every format includes the signature of each number.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from noise2text.metrics.alternatives import label_alternatives
from noise2text.metrics.diversity import DIVERSITY_METRICS
from noise2text.metrics.evaluate import LABELS

__all__ = ["ScoreRow", "collect_score_rows", "escape_latex", "to_csv", "to_latex", "to_text"]

SCORES = LABELS | {kind.name: kind.label for kind in DIVERSITY_METRICS}


@dataclass(frozen=True)
class ScoreRow:
    """One number of an evaluation with its name, its signature and, if there is one, its interval."""

    name: str
    value: str
    signature: str
    low: str = ""
    high: str = ""


def collect_score_rows(result: Mapping[str, Any]) -> list[ScoreRow]:
    """All numbers of an evaluation, in order."""
    found = _scores(result)
    found += [_length(unit, mean) for unit, mean in result["lengths"].items()]
    found.append(ScoreRow("sentences", str(result["sentences"]), ""))
    alternatives = result.get("alternatives", {})
    found += [_score_row(label_alternatives(name), entry) for name, entry in alternatives.items()]
    found += _scores(result.get("diversity", {}))
    found += _scores(result.get("copy_source", {}), " of the source")
    if "copied" in result:
        signature = "percent equal to the source|space:strip-outer"
        found.append(ScoreRow("copied", f"{100 * result['copied']:.2f}", signature))
    copying = result.get("copying", {})
    found += _scores({name: entry for name, entry in copying.items() if name not in result})
    found += _scores(copying.get("references", {}), ", by the references")
    return found + [line for test in result.get("against", {}).get("tests", ()) for line in _test_rows(test)]


def _scores(scores: Mapping[str, Any], suffix: str = "") -> list[ScoreRow]:
    return [
        _score_row(SCORES.get(name, name) + suffix, entry)
        for name, entry in scores.items()
        if isinstance(entry, Mapping) and "score" in entry
    ]


def _score_row(name: str, entry: Mapping[str, Any]) -> ScoreRow:
    value, interval = f"{entry['score']:.2f}", entry.get("interval")
    if interval is None:
        return ScoreRow(name, value, entry["signature"])
    signature = f"{entry['signature']}|interval:95%|{interval['signature']}"
    return ScoreRow(name, value, signature, f"{interval['low']:.2f}", f"{interval['high']:.2f}")


def _length(unit: str, mean: Mapping[str, Any]) -> ScoreRow:
    ratio = "none" if mean["ratio"] is None else f"{mean['ratio']:.3f}"
    return ScoreRow(
        unit, f"{mean['hypothesis']:.2f}", f"mean|reference:{mean['reference']:.2f}|ratio:{ratio}"
    )


def _test_rows(test: Mapping[str, Any]) -> list[ScoreRow]:
    difference = ScoreRow(f"{test['metric']}, difference", f"{test['difference']:+.2f}", test["signature"])
    return [difference, ScoreRow(f"{test['metric']}, p", f"{test['p']:.4f}", f"paired|{test['signature']}")]


def to_text(found: Sequence[ScoreRow], *, width: int | None = None) -> str:
    """Aligned columns: name, number, interval, signature; signatures that do not fit `width` stand below."""
    rows = [(line.name, line.value, f"[{line.low}, {line.high}]" if line.low else "") for line in found]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    scores = [
        f"{name:<{widths[0]}}  {value:>{widths[1]}}  " + (f"{interval:<{widths[2]}}  " if widths[2] else "")
        for name, value, interval in rows
    ]
    signatures = [line.signature for line in found]
    notes: list[str] = []
    if width is not None and any(
        len(score + each) > width for score, each in zip(scores, signatures, strict=True)
    ):
        numbers = {each: f"[{n}]" for n, each in enumerate(dict.fromkeys(filter(None, signatures)), 1)}
        notes = ["", *(f"{number} {each}" for each, number in numbers.items())]
        signatures = [numbers.get(each, "") for each in signatures]
    lines = [(score + each).rstrip() for score, each in zip(scores, signatures, strict=True)]
    return "\n".join(lines + notes) + "\n"


def to_csv(found: Sequence[ScoreRow]) -> str:
    """Comma-separated values under a header: metric, score, low, high, signature."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["metric", "score", "low", "high", "signature"])
    writer.writerows([line.name, line.value, line.low, line.high, line.signature] for line in found)
    return file.getvalue()


def to_latex(found: Sequence[ScoreRow]) -> str:
    """A tabular with booktabs rules; the signatures are the last column."""
    has_intervals = any(line.low for line in found)
    header = ["Metric", "Score", *(["95\\,\\% interval"] if has_intervals else []), "Signature"]
    rows = []
    for line in found:
        interval = [f"[{line.low}, {line.high}]" if line.low else ""] if has_intervals else []
        signature = f"\\texttt{{{escape_latex(line.signature)}}}" if line.signature else ""
        rows.append([escape_latex(line.name), line.value, *interval, signature])
    body = "\n".join(" & ".join(row).rstrip() + " \\\\" for row in rows)
    columns = "lrcl" if has_intervals else "lrl"
    top = f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{' & '.join(header)} \\\\\n\\midrule\n"
    return f"{top}{body}\n\\bottomrule\n\\end{{tabular}}\n"


SPECIAL: dict[str, str | int | None] = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def escape_latex(text: str) -> str:
    """The text with LaTeX's special characters escaped."""
    return text.translate(str.maketrans(SPECIAL))
