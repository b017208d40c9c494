"""The data of a report, collected once: the runs, their texts for the same sources, and the references.

Each run generates texts for all sources with its own settings; the first few are traced, to show denoising.
Then each generates texts with a single candidate for fewer sources from several seeds, for the figures of
sampling and diversity. Noise depends on the index of a text and not on its batch, so generating in several
parts gives the same texts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from noise2text.analysis.generation import collect_references, draw_samples, known_settings
from noise2text.analysis.inputs import Inputs
from noise2text.commands.inspect import inspect_model
from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem
from noise2text.core.json_files import read_json_object
from noise2text.data.corpus import Pair, read_pairs
from noise2text.data.corpus_paths import split_corpus_path
from noise2text.models import GenerationOutput, Model
from noise2text.models.folder import load

__all__ = [
    "FIGURE_SENTENCES",
    "SAMPLES_PER_SOURCE",
    "TRACED_SENTENCES",
    "ReportConfig",
    "ReportData",
    "ReportedRun",
    "collect_report_data",
    "count_progress_steps",
    "find_validation_pairs",
    "first_pairs",
]

TRACED_SENTENCES = 3  # whose denoising is shown
FIGURE_SENTENCES = 50  # for the figures that generate texts
SAMPLES_PER_SOURCE = 3  # texts with a single candidate (DiffuSeq, table 1)
SINGLE_CANDIDATE = {"noise_beam": 1, "length_beam": 1}


@dataclass(frozen=True)
class ReportConfig:
    """The options of a report."""

    sentences: int = 200
    seed: int = 0
    batch: int = 32
    device: str | None = None

    def __post_init__(self) -> None:
        for name in ("sentences", "batch"):
            if getattr(self, name) < 1:
                raise Problem(f"--{name} must be at least 1, not {getattr(self, name)}.")


@dataclass(frozen=True)
class ReportedRun:
    """A run in the report: its facts, its model and its texts."""

    name: str
    folder: Path
    inspection: Mapping[str, Mapping[str, Any]]  # model, settings and generation, as `inspect` shows them
    model: Model  # set to a single candidate, for the figures
    output: GenerationOutput  # for all sources, with its own settings; the first few are traced
    samples: Sequence[GenerationOutput]  # with a single candidate for the first sources, traced; one per seed


@dataclass(frozen=True)
class ReportData:
    """The data of all sections."""

    runs: Sequence[ReportedRun]
    pairs: Sequence[Pair]
    file: str  # the name of the file of pairs
    config: ReportConfig

    @property
    def sources(self) -> list[str]:
        return [pair.src for pair in self.pairs]

    @property
    def references(self) -> list[tuple[str, ...]]:
        return collect_references(self.pairs)

    @property
    def figure_pairs(self) -> Sequence[Pair]:
        """The pairs for the figures that generate texts."""
        return self.pairs[:FIGURE_SENTENCES]

    @property
    def models(self) -> dict[str, Model]:
        return {each.name: each.model for each in self.runs}

    @property
    def texts(self) -> dict[str, list[str]]:
        """The selected texts of each run."""
        return {each.name: each.output.texts for each in self.runs}

    def describe_count(self) -> str:
        """The number of sentences in words."""
        return "1 sentence" if len(self.pairs) == 1 else f"{len(self.pairs):,} sentences"

    def restrict_to(self, runs: Sequence[ReportedRun]) -> ReportData:
        """The data of some of the runs."""
        return dataclasses.replace(self, runs=runs)

    def inputs(self, **options: Any) -> Inputs:
        """The runs and the pairs as inputs of an analysis."""
        return Inputs(
            models=[each.folder for each in self.runs],
            outputs=self.texts,
            pairs=self.pairs,
            options=options,
            seed=self.config.seed,
            device=self.config.device,
        )


def find_validation_pairs(folders: Sequence[Path]) -> str:
    """The file of the validation pairs of the runs."""
    found = {str(folder): _validation_pairs(folder) for folder in folders}
    if len(set(found.values())) > 1:
        names = " and ".join(sorted(set(found.values())))
        raise Problem(f"The runs have different validation pairs, {names}: choose pairs with --test.")
    folder, file = next(iter(found.items()))
    missing = [part for part in split_corpus_path(file) if not Path(part).is_file()]
    if missing:
        raise Problem(
            f"The validation pairs of {folder}, {file}, do not exist here: give others with --test."
        )
    return file


def _validation_pairs(folder: Path) -> str:
    try:
        return str(read_json_object(folder / "run.json")["valid"])
    except (Problem, KeyError) as error:
        raise Problem(f"{folder} does not record its validation pairs: give pairs with --test.") from error


def first_pairs(file: str, count: int) -> list[Pair]:
    """At most `count` pairs of a file, from the first."""
    return list(islice(read_pairs(file), count))


def count_progress_steps(sentences: int, config: ReportConfig) -> int:
    """How often `collect_report_data` calls `advance` per run."""
    return len(_windows(sentences, config.batch)) + 1


def collect_report_data(
    folders: Sequence[Path],
    pairs: Sequence[Pair],
    *,
    file: str,
    config: ReportConfig,
    advance: Callable[[str], None],
) -> ReportData:
    """The data of these runs; `advance` is called after each part."""
    folders_by_name = Inputs(models=folders).folders_by_name()
    if len(folders_by_name) < len(folders):
        raise Problem("A run is given twice: give each folder once.")
    try:
        # All folders are read first, so that a bad one costs no time.
        inspection = {name: inspect_model(folder) for name, folder in folders_by_name.items()}
    except OSError as error:
        raise Problem(f"{error.filename} cannot be read: {error.strerror}.") from error
    runs = [
        _collect_run(name, folders_by_name[name], inspection[name], pairs, config, advance)
        for name in folders_by_name
    ]
    return ReportData(runs, pairs, file, config)


def _collect_run(
    name: str,
    folder: Path,
    inspection: Mapping[str, Mapping[str, Any]],
    pairs: Sequence[Pair],
    config: ReportConfig,
    advance: Callable[[str], None],
) -> ReportedRun:
    model = load(folder, device=config.device)
    output = _generate(model, [pair.src for pair in pairs], config, lambda: advance(f"{name} generates"))
    model.generation_config = apply_overrides(
        model.generation_config, known_settings(model, **SINGLE_CANDIDATE), origin=name
    )
    samples = draw_samples(
        model,
        pairs[:FIGURE_SENTENCES],
        count=SAMPLES_PER_SOURCE,
        seed=config.seed,
        batch=config.batch,
        trace=True,
    )
    advance(f"{name} generates")
    return ReportedRun(name, folder, inspection, model, output, samples)


def _generate(
    model: Model, sources: Sequence[str], config: ReportConfig, advance: Callable[[], None]
) -> GenerationOutput:
    """The texts for all sources, the first few traced."""
    whole = GenerationOutput()
    for indices in _windows(len(sources), config.batch):
        window = [sources[index] for index in indices]
        is_traced = indices.start < TRACED_SENTENCES
        part = model.generate(window, seed=config.seed, batch=config.batch, indices=indices, trace=is_traced)
        whole.texts += part.texts
        whole.candidates += part.candidates
        whole.scores += part.scores
        whole.lengths += part.lengths
        whole.chosen += part.chosen
        whole.traces += part.traces
        whole.drafts += part.drafts
        whole.utilities += part.utilities
        whole.truncated += part.truncated
        advance()
    return whole


def _windows(count: int, batch: int) -> list[range]:
    """The indices of the traced sentences, then those of four batches at a time."""
    starts = [0, *range(min(TRACED_SENTENCES, count), count, 4 * batch), count]
    return [range(start, end) for start, end in pairwise(starts) if start < end]
