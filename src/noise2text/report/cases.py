"""The worst and the best sentences of a run by chrF, with their candidates.

    chrF of a sentence: the corpus formula on its counts alone (sacrebleu's sentence_chrf)

Equal scores keep the order of the input. A text that equals its source is flagged as a copy.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from noise2text.metrics.chrf import chrf
from noise2text.metrics.metric import References
from noise2text.report.html import Html, Section, element, join_html, note, text
from noise2text.report.report_data import ReportData, ReportedRun

__all__ = ["sentence_chrf", "show_cases", "worst_and_best"]

SHOWN = 5  # worst and best sentences each
MAX_CANDIDATES = 8  # different ones per sentence


def sentence_chrf(texts: list[str], references: References) -> tuple[list[float], str]:
    """The chrF of each sentence, in percent, and the signature."""
    found = chrf.statistics(texts, references)
    return [float(score) for score in found.formula(found.rows)], f"{found.signature}|of each sentence"


def worst_and_best(values: list[float], count: int) -> tuple[list[int], list[int]]:
    """The indices of the lowest values, lowest first, and of the highest; no index is in both.

    The maximum is never among the lowest, even if fewer than `count` are left.
    """
    numbers = np.array(values)
    rising = [index for index in np.argsort(numbers, kind="stable").tolist() if values[index] < max(values)]
    worst = rising[: min(count, (len(values) + 1) // 2)]
    falling = np.argsort(-numbers, kind="stable").tolist()
    return worst, [index for index in falling if index not in worst][:count]


def show_cases(data: ReportData) -> Section:
    """The worst and the best sentences of each run."""
    about = (
        f"The lowest and the highest chrF of {data.describe_count()}. "
        "A number after a candidate says how often it was generated."
    )
    shown = [_worst_and_best(each, data) for each in data.runs]
    return Section("cases", "Worst and best", join_html(note(about), *shown))


def _worst_and_best(run: ReportedRun, data: ReportData) -> Html:
    values, signature = sentence_chrf(run.output.texts, data.references)
    worst, best = worst_and_best(values, SHOWN)
    parts = [] if worst else [note(f"All sentences of {run.name} have the same chrF.")]
    for title, indices in (("worst", worst), ("best", best)):
        if indices:
            shown = (_case(run, data, index, values[index]) for index in indices)
            parts += [element("h3", f"{run.name}: {title}"), element("div", *shown, class_="figures")]
    return join_html(*parts, element("p", element("code", f"chrF|{signature}")))


def _case(run: ReportedRun, data: ReportData, index: int, value: float) -> Html:
    pair, own = data.pairs[index], run.output.texts[index]
    rows: list[tuple[str, object]] = [
        (f"sentence {index + 1}", f"chrF {value:.2f}"),
        ("source", text(pair.src)),
    ]
    rows += [("reference", text(each)) for each in dict.fromkeys(pair.references)]
    rows.append((run.name, _flag_copy(own, pair.src)))
    candidates = run.output.candidates[index]
    if len(candidates) > 1:
        rows.append(("candidates", _candidates(candidates, pair.src)))
    rows += [
        (other.name, _flag_copy(other.output.texts[index], pair.src))
        for other in data.runs
        if other is not run
    ]
    listed = (join_html(element("dt", name), element("dd", shown)) for name, shown in rows)
    return element("div", element("dl", *listed), class_="case")


def _flag_copy(own: str, source: str) -> Html:
    """The text, flagged if it equals its source."""
    if own.strip() != source.strip():
        return text(own)
    return join_html(text(own), " ", element("span", "copy of the source", class_="flag"))


def _candidates(candidates: list[str], source: str) -> Html:
    """The different candidates, the most frequent first, with their counts."""
    counted = Counter(candidates).most_common()
    shown = [
        element("div", _flag_copy(each, source), f" ×{times}" if times > 1 else "")
        for each, times in counted[:MAX_CANDIDATES]
    ]
    left = len(counted) - MAX_CANDIDATES
    return join_html(*shown, note(f"and {left} more") if left > 0 else "")
