"""How good the texts are: every score of every run with its interval and signature, and tests between runs.

The runs answered the same sources once, with one seed and their own settings. Diversity is that of lone
texts from several seeds. The first run is what the others are tested against (paired bootstrap).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from noise2text.metrics.intervals import DRAWS
from noise2text.metrics.metrics import METRICS, diversity, evaluate
from noise2text.metrics.rouge import rouge_l
from noise2text.metrics.significance import Tested, paired_bootstrap
from noise2text.metrics.tables import Line, lines
from noise2text.report.evidence import SAMPLES, Evidence, Subject
from noise2text.report.markup import Html, Section, details, element, joined, note, table

__all__ = ["differences", "scores"]


def scores(evidence: Evidence) -> Section:
    """A table of all numbers, a column a run, and the signatures of all of them."""
    found = {each.name: {line.name: line for line in _judged(each, evidence)} for each in evidence.subjects}
    names = list(dict.fromkeys(name for own in found.values() for name in own))
    rows = [[name, *(_cell(own.get(name)) for own in found.values())] for name in names]
    count, few = len(evidence.pairs), len(evidence.few)
    about = (
        f"{evidence.counted()} of {evidence.file}, seed {evidence.terms.seed}, each run by its own settings. "
        "In brackets the interval of 95 % by bootstrap. Diversity (from dist-1 on) is that of "
        f"{SAMPLES} lone texts a source, from as many seeds, for the first {few} sources."
    )
    body = joined(
        note(about),
        table(["", *found], rows, label="Scores"),
        details("How each number was made", _signatures(names, found)),
        *(note(_cut(each, count)) for each in evidence.subjects if each.made.truncated),
    )
    return Section("scores", "Scores", body)


def _judged(subject: Subject, evidence: Evidence) -> list[Line]:
    metrics = (*METRICS, rouge_l) if find_spec("rouge_score") else METRICS
    texts = subject.made.texts
    result: dict[str, Any] = evaluate(
        texts, evidence.references, evidence.sources, metrics=metrics, draws=DRAWS
    )
    several = list(zip(*(sample.texts for sample in subject.samples), strict=True))
    result["diversity"] = diversity(several, draws=DRAWS)
    return lines(result)


def _cell(line: Line | None) -> object:
    if line is None:
        return "–"
    ends = element("span", f" [{line.low}, {line.high}]", class_="interval") if line.low else ""
    return joined(line.value, ends)


def _signatures(names: Sequence[str], found: Mapping[str, Mapping[str, Line]]) -> Html:
    """Each number's signature, once if all runs share it."""
    rows = []
    for name in names:
        own = {run: scored[name].signature for run, scored in found.items() if name in scored}
        if len(set(own.values())) == 1:
            own = {"": next(iter(own.values()))}
        rows += [[name, run, element("code", signature)] for run, signature in own.items() if signature]
    return table(["number", "run", "signature"], rows, label="Signatures of the scores")


def _cut(subject: Subject, count: int) -> str:
    return (
        f"{subject.name} read only the beginning of {subject.made.truncated} of {count:,} sources: too long."
    )


def differences(evidence: Evidence) -> Section | None:
    """Each run against the first; none of a single run."""
    if len(evidence.subjects) == 1:
        return None
    tested = paired_bootstrap(evidence.texts, evidence.references)
    first, *others = tested
    rows = [
        [name, own.metric, *_difference(own, base)]
        for name in others
        for own, base in zip(tested[name], tested[first], strict=True)
    ]
    signatures = dict.fromkeys(f"{own.metric}|{own.signature}" for all in tested.values() for own in all)
    body = joined(
        note("Paired bootstrap; a star marks p < 0.05, not corrected for several comparisons."),
        table(["run", "metric", "score", "difference", "p"], rows, label=f"Differences to {first}"),
        *(element("p", element("code", each)) for each in signatures),
    )
    return Section("differences", f"Differences to {first}", body)


def _difference(own: Tested, base: Tested) -> list[object]:
    chance = 1.0 if own.p is None else own.p
    mark = "\N{NO-BREAK SPACE}*" if chance < 0.05 else ""
    return [f"{own.score:.2f}", f"{own.score - base.score:+.2f}", f"{chance:.4f}{mark}"]
