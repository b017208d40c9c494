"""Where a run is at its worst and at its best: sentences by their own chrF, with all that it chose from.

    chrF of a sentence: the corpus formula on its counts alone (sacrebleu's sentence_chrf)

Equal scores are in the order of the input. A text that is its source is flagged as a copy.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from noise2text.metrics.chrf import chrf
from noise2text.metrics.score import References
from noise2text.report.evidence import Evidence, Subject
from noise2text.report.markup import Html, Section, element, joined, note, text

__all__ = ["cases", "extremes", "sentence_chrf"]

SHOWN = 5  # of the worst, and of the best
MOST_CANDIDATES = 8  # different ones, of one sentence


def sentence_chrf(texts: list[str], references: References) -> tuple[list[float], str]:
    """The chrF of each sentence, in percent, and how it was made."""
    found = chrf.statistics(texts, references)
    return [float(score) for score in found.formula(found.rows)], f"{found.signature}|of each sentence"


def extremes(values: list[float], count: int) -> tuple[list[int], list[int]]:
    """The places of the lowest values, lowest first, and of the highest; no place is in both.

    What is as high as any is not among the lowest, even where fewer are left than were asked for.
    """
    numbers = np.array(values)
    rising = [place for place in np.argsort(numbers, kind="stable").tolist() if values[place] < max(values)]
    worst = rising[: min(count, (len(values) + 1) // 2)]
    falling = np.argsort(-numbers, kind="stable").tolist()
    return worst, [place for place in falling if place not in worst][:count]


def cases(evidence: Evidence) -> Section:
    """The worst and the best sentences of each run."""
    about = (
        f"Of {evidence.counted()} those of the lowest and the highest chrF. A number after a candidate says "
        "how often it was written."
    )
    shown = [_extremes(each, evidence) for each in evidence.subjects]
    return Section("cases", "Worst and best", joined(note(about), *shown))


def _extremes(subject: Subject, evidence: Evidence) -> Html:
    values, signature = sentence_chrf(subject.made.texts, evidence.references)
    worst, best = extremes(values, SHOWN)
    parts = [] if worst else [note(f"No sentence of {subject.name} is worse than another.")]
    for title, places in (("worst", worst), ("best", best)):
        if places:
            shown = (_case(subject, evidence, place, values[place]) for place in places)
            parts += [element("h3", f"{subject.name}: {title}"), element("div", *shown, class_="figures")]
    return joined(*parts, element("p", element("code", f"chrF|{signature}")))


def _case(subject: Subject, evidence: Evidence, place: int, value: float) -> Html:
    pair, own = evidence.pairs[place], subject.made.texts[place]
    rows: list[tuple[str, object]] = [
        (f"sentence {place + 1}", f"chrF {value:.2f}"),
        ("source", text(pair.src)),
    ]
    rows += [("reference", text(each)) for each in dict.fromkeys((pair.trg, *pair.refs))]
    rows.append((subject.name, _written(own, pair.src)))
    candidates = subject.made.candidates[place]
    if len(candidates) > 1:
        rows.append(("candidates", _candidates(candidates, pair.src)))
    rows += [
        (other.name, _written(other.made.texts[place], pair.src))
        for other in evidence.subjects
        if other is not subject
    ]
    listed = (joined(element("dt", name), element("dd", shown)) for name, shown in rows)
    return element("div", element("dl", *listed), class_="case")


def _written(own: str, source: str) -> Html:
    """The text, flagged if it is its source."""
    if own.strip() != source.strip():
        return text(own)
    return joined(text(own), " ", element("span", "copy of the source", class_="flag"))


def _candidates(candidates: list[str], source: str) -> Html:
    """The different ones, the most frequent first, and how often each was written."""
    counted = Counter(candidates).most_common()
    shown = [
        element("div", _written(each, source), f" ×{times}" if times > 1 else "")
        for each, times in counted[:MOST_CANDIDATES]
    ]
    left = len(counted) - MOST_CANDIDATES
    return joined(*shown, note(f"and {left} more") if left > 0 else "")
