"""The figures of the papers for the runs of a report, each for the runs that it applies to.

Whether a figure applies to a run is checked first. If it still fails for all of them together, it is made for
each run alone; a line names each run without the figure, and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from noise2text.analysis.catalogue import ANALYSES
from noise2text.analysis.finding import Finding
from noise2text.analysis.generation import signature
from noise2text.analysis.sampling import from_pure_noise, sampling_finding
from noise2text.analysis.tradeoffs import CANDIDATE_SETTINGS, diversity_finding, quality_by_candidates
from noise2text.core.errors import Problem
from noise2text.models import DiffusionModel
from noise2text.report.figure_html import figures
from noise2text.report.html import Section, join_html, note
from noise2text.report.report_data import SAMPLES_PER_SOURCE, ReportData, ReportedRun

__all__ = ["FIGURES", "Figure"]

COUNTS = (1, 2, 5)  # candidates drawn
POINTS = 20  # of a curve over steps or times


@dataclass(frozen=True)
class Figure:
    """A section of findings; call it to make it."""

    name: str
    title: str
    why_not: str  # the reason for a run that it does not apply to
    applies_to: Callable[[ReportedRun], bool]
    analyze: Callable[[ReportData], list[Finding]]

    def __call__(self, data: ReportData) -> Section:
        """The findings, and one line per run without them."""
        applicable = [each for each in data.runs if self.applies_to(each)]
        others = {each.name: f"{self.why_not}." for each in data.runs if not self.applies_to(each)}
        found, refused = self._analyze(data, applicable)
        notes = [note(f"Not for {name}: {reason}") for name, reason in (others | refused).items()]
        return Section(self.name, self.title, join_html(*notes, figures(found, prefix=self.name)))

    def _analyze(
        self, data: ReportData, applicable: Sequence[ReportedRun]
    ) -> tuple[list[Finding], dict[str, str]]:
        """The findings for the runs together, else for each alone, and the reasons why some have none."""
        if not applicable:
            return [], {}
        try:
            return self.analyze(data.restrict_to(applicable)), {}
        except Problem as problem:
            if len(applicable) == 1:
                return [], {applicable[0].name: str(problem)}
        alone = [self._analyze(data, [each]) for each in applicable]
        found = [finding for own, _ in alone for finding in own]
        return found, {name: reason for _, refused in alone for name, reason in refused.items()}


def _always(run: ReportedRun) -> bool:
    return True


def _is_diffusion(run: ReportedRun) -> bool:
    return isinstance(run.model, DiffusionModel)


def _has_steps(run: ReportedRun) -> bool:
    return any(trace for sample in run.samples for trace in sample.traces)


def _has_candidates(run: ReportedRun) -> bool:
    return any(hasattr(run.model.generation_config, setting) for setting in CANDIDATE_SETTINGS)


def _lengths(data: ReportData) -> list[Finding]:
    return ANALYSES["lengths"](data.inputs())


def _sampling(data: ReportData) -> list[Finding]:
    outputs = {each.name: each.samples for each in data.runs}
    return [
        sampling_finding(
            outputs, data.figure_pairs, signature=_signature(data, noises=SAMPLES_PER_SOURCE), points=POINTS
        )
    ]


def _diversity(data: ReportData) -> list[Finding]:
    outputs = {each.name: each.samples for each in data.runs}
    return [
        diversity_finding(outputs, data.figure_pairs, signature=_signature(data, samples=SAMPLES_PER_SOURCE))
    ]


def _signature(data: ReportData, **facts: object) -> str:
    return signature(data.models, data.figure_pairs, {}, seed=data.config.seed, **facts)


def _from_noise(data: ReportData) -> list[Finding]:
    config = data.config
    return [
        from_pure_noise(data.models, data.figure_pairs, points=POINTS, seed=config.seed, batch=config.batch)
    ]


def _candidates(data: ReportData) -> list[Finding]:
    config = data.config
    return [
        quality_by_candidates(
            data.models, data.figure_pairs, counts=COUNTS, seed=config.seed, batch=config.batch
        )
    ]


def _positions(data: ReportData) -> list[Finding]:
    return ANALYSES["positions"](data.inputs(points=POINTS, sentences=len(data.figure_pairs)))


def _embeddings(data: ReportData) -> list[Finding]:
    return ANALYSES["embeddings"](data.inputs(count=3))


def _degeneration(data: ReportData) -> list[Finding]:
    found = ANALYSES["degeneration"](data.inputs(cells=POINTS))
    return [each for each in found if each.name != "rescaled"]  # which is the same for every run


NO_DIFFUSION = "it is not a diffusion model"
FIGURES: tuple[Figure, ...] = (
    Figure("lengths", "Quality by length", "", _always, _lengths),
    Figure("diversity", "Quality and diversity", "", _always, _diversity),
    Figure("sampling", "From noise to text", "it generates without steps", _has_steps, _sampling),
    Figure("from-noise", "From pure noise", NO_DIFFUSION, _is_diffusion, _from_noise),
    Figure("candidates", "Candidates", "it has no candidates", _has_candidates, _candidates),
    Figure("positions", "Times and positions", NO_DIFFUSION, _is_diffusion, _positions),
    Figure("embeddings", "Embeddings", NO_DIFFUSION, _is_diffusion, _embeddings),
    Figure("degeneration", "Degeneration", NO_DIFFUSION, _is_diffusion, _degeneration),
)
