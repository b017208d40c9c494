"""The figures of the papers for the runs of a page: each for those runs that it can be made for.

Which runs a figure suits is asked before anything is run. What still cannot be made for all of them together
is made for each alone, and a run that has no such figure is named, with the reason, in one line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from noise2text.analysis.catalogue import ANALYSES
from noise2text.analysis.finding import Finding
from noise2text.analysis.samples import signature
from noise2text.analysis.tradeoffs import CANDIDATES, against_candidates, diversity_of
from noise2text.analysis.walks import from_pure_noise, walk_of
from noise2text.core.errors import Problem
from noise2text.models import Diffusion
from noise2text.report.drawing import figures
from noise2text.report.evidence import SAMPLES, Evidence, Subject
from noise2text.report.markup import Section, joined, note

__all__ = ["FIGURES", "Figure"]

COUNTS = (1, 2, 5)  # candidates drawn
POINTS = 20  # of a walk or a schedule


@dataclass(frozen=True)
class Figure:
    """A section of findings: calling it makes it."""

    name: str
    title: str
    lacks: str  # what a run lacks that it does not suit
    suits: Callable[[Subject], bool]
    find: Callable[[Evidence], list[Finding]]

    def __call__(self, evidence: Evidence) -> Section:
        """The findings, and a line for each run that they are not about."""
        suited = [each for each in evidence.subjects if self.suits(each)]
        others = {each.name: f"{self.lacks}." for each in evidence.subjects if not self.suits(each)}
        found, refused = self._found(evidence, suited)
        notes = [note(f"Not for {name}: {reason}") for name, reason in (others | refused).items()]
        return Section(self.name, self.title, joined(*notes, figures(found, prefix=self.name)))

    def _found(self, evidence: Evidence, suited: Sequence[Subject]) -> tuple[list[Finding], dict[str, str]]:
        """The findings on the runs together, else on each alone, and why some have none."""
        if not suited:
            return [], {}
        try:
            return self.find(evidence.only(suited)), {}
        except Problem as problem:
            if len(suited) == 1:
                return [], {suited[0].name: str(problem)}
        alone = [self._found(evidence, [each]) for each in suited]
        found = [finding for own, _ in alone for finding in own]
        return found, {name: reason for _, refused in alone for name, reason in refused.items()}


def _always(subject: Subject) -> bool:
    return True


def _diffuses(subject: Subject) -> bool:
    return isinstance(subject.system, Diffusion)


def _walks(subject: Subject) -> bool:
    return any(trace for sample in subject.samples for trace in sample.traces)


def _draws(subject: Subject) -> bool:
    return any(hasattr(subject.system.how, setting) for setting in CANDIDATES)


def _lengths(evidence: Evidence) -> list[Finding]:
    return ANALYSES["lengths"](evidence.inputs())


def _walk(evidence: Evidence) -> list[Finding]:
    made = {each.name: each.samples for each in evidence.subjects}
    return [walk_of(made, evidence.few, signature=_how(evidence, noises=SAMPLES), points=POINTS)]


def _diversity(evidence: Evidence) -> list[Finding]:
    made = {each.name: each.samples for each in evidence.subjects}
    return [diversity_of(made, evidence.few, signature=_how(evidence, samples=SAMPLES))]


def _how(evidence: Evidence, **facts: object) -> str:
    return signature(evidence.systems, evidence.few, {}, seed=evidence.terms.seed, **facts)


def _from_noise(evidence: Evidence) -> list[Finding]:
    terms = evidence.terms
    return [
        from_pure_noise(evidence.systems, evidence.few, points=POINTS, seed=terms.seed, batch=terms.batch)
    ]


def _candidates(evidence: Evidence) -> list[Finding]:
    terms = evidence.terms
    return [
        against_candidates(evidence.systems, evidence.few, counts=COUNTS, seed=terms.seed, batch=terms.batch)
    ]


def _positions(evidence: Evidence) -> list[Finding]:
    return ANALYSES["positions"](evidence.inputs(points=POINTS, sentences=len(evidence.few)))


def _embeddings(evidence: Evidence) -> list[Finding]:
    return ANALYSES["embeddings"](evidence.inputs(count=3))


def _degeneration(evidence: Evidence) -> list[Finding]:
    found = ANALYSES["degeneration"](evidence.inputs(cells=POINTS))
    return [each for each in found if each.name != "rescaled"]  # the same for every run


NO_DIFFUSION = "it is not a diffusion model"
FIGURES: tuple[Figure, ...] = (
    Figure("lengths", "Quality by length", "", _always, _lengths),
    Figure("diversity", "Quality and diversity", "", _always, _diversity),
    Figure("walk", "On the way from noise to text", "it writes without steps", _walks, _walk),
    Figure("from-noise", "From pure noise", NO_DIFFUSION, _diffuses, _from_noise),
    Figure("candidates", "Candidates", "it draws no candidates", _draws, _candidates),
    Figure("positions", "Times and positions", NO_DIFFUSION, _diffuses, _positions),
    Figure("embeddings", "Embeddings", NO_DIFFUSION, _diffuses, _embeddings),
    Figure("degeneration", "Degeneration", NO_DIFFUSION, _diffuses, _degeneration),
)
