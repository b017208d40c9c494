"""The scores of every run with intervals and signatures, and significance tests between runs.

The runs generated texts for the same sources with one seed and their own settings. Diversity is measured on
texts with a single candidate from several seeds. The first run is the baseline of the paired bootstrap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from noise2text.metrics.bootstrap import N_RESAMPLES
from noise2text.metrics.evaluate import METRICS_OF_REPORTS, evaluate, evaluate_diversity
from noise2text.metrics.score_table import ScoreRow, collect_score_rows
from noise2text.metrics.significance import BootstrapResult, paired_bootstrap
from noise2text.report.html import Html, Section, details, element, join_html, note, table
from noise2text.report.report_data import SAMPLES_PER_SOURCE, ReportData, ReportedRun

__all__ = ["show_differences", "show_scores"]

HIGHER_IS_BETTER = {"BLEU", "chrF", "exact match", "ROUGE-L", "iBLEU"} | {
    *("distinct texts", "dist-1", "div-4", "dist-1 (DiffuSeq)", "div-4 (DiffuSeq)")
}
LOWER_IS_BETTER = {"self-BLEU", "self-BLEU (DiffuSeq)"}
"""The scores whose best value is marked; the others, such as lengths, have no better direction."""


def show_scores(data: ReportData) -> Section:
    """A table of all scores, one column per run, and their signatures."""
    found = {each.name: {line.name: line for line in _evaluate_run(each, data)} for each in data.runs}
    names = list(dict.fromkeys(name for own in found.values() for name in own))
    best = {name: _best_value(name, [own[name] for own in found.values() if name in own]) for name in names}
    rows = [[name, *(_cell(own.get(name), best[name]) for own in found.values())] for name in names]
    count, figure_pairs = len(data.pairs), len(data.figure_pairs)
    about = (
        f"{data.describe_count()} of {data.file}, seed {data.config.seed}, each run with its own settings. "
        "95 % bootstrap intervals are in brackets, and the best values are bold. Diversity (from dist-1 "
        "on) is measured on "
        f"{SAMPLES_PER_SOURCE} texts per source, from as many seeds, for the first {figure_pairs} sources."
    )
    body = join_html(
        note(about),
        table(["", *found], rows, label="Scores"),
        details("Signatures", _signatures(names, found)),
        *(note(_truncation_note(each, count)) for each in data.runs if each.output.truncated),
    )
    return Section("scores", "Scores", body)


def _evaluate_run(run: ReportedRun, data: ReportData) -> list[ScoreRow]:
    result: dict[str, Any] = evaluate(
        run.output.texts,
        data.references,
        data.sources,
        metrics=METRICS_OF_REPORTS,
        n_resamples=N_RESAMPLES,
    )
    samples_by_source = list(zip(*(sample.texts for sample in run.samples), strict=True))
    result["diversity"] = evaluate_diversity(samples_by_source, n_resamples=N_RESAMPLES)
    return collect_score_rows(result)


def _best_value(name: str, lines: Sequence[ScoreRow]) -> str | None:
    """The best value of a score with a better direction; None if all runs have the same."""
    if name not in HIGHER_IS_BETTER | LOWER_IS_BETTER or len({line.value for line in lines}) < 2:
        return None
    choose = max if name in HIGHER_IS_BETTER else min
    return choose((line.value for line in lines), key=float)


def _cell(line: ScoreRow | None, best: str | None) -> object:
    if line is None:
        return "–"
    ends = element("span", f" [{line.low}, {line.high}]", class_="interval") if line.low else ""
    return join_html(element("b", line.value, class_="best") if line.value == best else line.value, ends)


def _signatures(names: Sequence[str], found: Mapping[str, Mapping[str, ScoreRow]]) -> Html:
    """The signature of each score, once if all runs share it."""
    rows = []
    for name in names:
        own = {run: scored[name].signature for run, scored in found.items() if name in scored}
        if len(set(own.values())) == 1:
            own = {"": next(iter(own.values()))}
        rows += [[name, run, element("code", signature)] for run, signature in own.items() if signature]
    return table(["number", "run", "signature"], rows, label="Signatures of the scores")


def _truncation_note(run: ReportedRun, count: int) -> str:
    return f"{run.name} truncated {run.output.truncated} of {count:,} sources, which were too long."


def show_differences(data: ReportData) -> Section | None:
    """Each run tested against the first; None for a single run."""
    if len(data.runs) == 1:
        return None
    tests = paired_bootstrap(data.texts, data.references)
    first, *others = tests
    rows = [
        [name, own.metric, *_difference(own, base)]
        for name in others
        for own, base in zip(tests[name], tests[first], strict=True)
    ]
    signatures = dict.fromkeys(f"{own.metric}|{own.signature}" for both in tests.values() for own in both)
    body = join_html(
        note("Paired bootstrap; a star marks p < 0.05, not corrected for multiple comparisons."),
        table(["run", "metric", "score", "difference", "p"], rows, label=f"Differences to {first}"),
        *(element("p", element("code", each)) for each in signatures),
    )
    return Section("differences", f"Differences to {first}", body)


def _difference(own: BootstrapResult, base: BootstrapResult) -> list[object]:
    p_value = 1.0 if own.p is None else own.p
    mark = "\N{NO-BREAK SPACE}*" if p_value < 0.05 else ""
    return [f"{own.score:.2f}", f"{own.score - base.score:+.2f}", f"{p_value:.4f}{mark}"]
