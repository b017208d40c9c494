"""What a page is made of, gathered once: the runs, what they wrote to the same sources, and the references.

Each run answers all sources with its own settings; the first few answers are traced, for their denoising.
Then each writes a few lone texts, without candidates, to fewer sources from several seeds: what the figures
of walks and diversity are about. Noise belongs to a text's place and not to its batch, so answers that were
asked for in several parts are those that would have been given at once.
"""

from __future__ import annotations

import dataclasses
import json
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
from noise2text.data.corpus import Pair, read_pairs
from noise2text.data.text_files import split_corpus_path
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

TRACED_SENTENCES = 3  # sentences whose denoising is shown
FIGURE_SENTENCES = 50  # sentences of the figures that run models
SAMPLES_PER_SOURCE = 3  # lone texts a source (DiffuSeq, table 1)
SINGLE_CANDIDATE = {"noise_beam": 1, "length_beam": 1}


@dataclass(frozen=True)
class ReportConfig:
    """What is the same for all runs of a page."""

    sentences: int = 200
    seed: int = 0
    batch: int = 32
    device: str | None = None

    def __post_init__(self) -> None:
        for name in ("sentences", "batch"):
            if getattr(self, name) < 1:
                raise Problem(f"A report needs --{name} of at least 1, not {getattr(self, name)}.")


@dataclass(frozen=True)
class ReportedRun:
    """A run on the page: what is known of it, and what it wrote."""

    name: str
    folder: Path
    inspection: Mapping[str, Mapping[str, Any]]  # model, settings and generation, as `inspect` shows them
    model: Model  # which was made to write a lone text, for the figures
    output: GenerationOutput  # to all sources, by its own settings; the first few are traced
    samples: Sequence[GenerationOutput]  # lone texts to the first sources, traced; a seed each


@dataclass(frozen=True)
class ReportData:
    """All that sections are made of."""

    runs: Sequence[ReportedRun]
    pairs: Sequence[Pair]
    file: str  # the pairs' name
    config: ReportConfig

    @property
    def sources(self) -> list[str]:
        return [pair.src for pair in self.pairs]

    @property
    def references(self) -> list[tuple[str, ...]]:
        return collect_references(self.pairs)

    @property
    def figure_pairs(self) -> Sequence[Pair]:
        """The pairs of the figures that run models."""
        return self.pairs[:FIGURE_SENTENCES]

    @property
    def models(self) -> dict[str, Model]:
        return {each.name: each.model for each in self.runs}

    @property
    def texts(self) -> dict[str, list[str]]:
        """What each run chose."""
        return {each.name: each.output.texts for each in self.runs}

    def describe_count(self) -> str:
        """How many sentences there are, in words."""
        return "1 sentence" if len(self.pairs) == 1 else f"{len(self.pairs):,} sentences"

    def restrict_to(self, runs: Sequence[ReportedRun]) -> ReportData:
        """The same of some of the runs."""
        return dataclasses.replace(self, runs=runs)

    def inputs(self, **options: Any) -> Inputs:
        """The runs and the pairs as an analysis takes them."""
        return Inputs(
            models=[each.folder for each in self.runs],
            outputs=self.texts,
            pairs=self.pairs,
            options=options,
            seed=self.config.seed,
            device=self.config.device,
        )


def find_validation_pairs(folders: Sequence[Path]) -> str:
    """The file of pairs that the runs were validated on."""
    found = {str(folder): _validation_pairs(folder) for folder in folders}
    if len(set(found.values())) > 1:
        names = " and ".join(sorted(set(found.values())))
        raise Problem(f"The runs were validated on different pairs, {names}: say which with --pairs.")
    folder, file = next(iter(found.items()))
    missing = [part for part in split_corpus_path(file) if not Path(part).is_file()]
    if missing:
        raise Problem(
            f"The validation pairs of {folder}, {file}, are no file here: give others with --pairs."
        )
    return file


def _validation_pairs(folder: Path) -> str:
    try:
        return str(json.loads((folder / "run.json").read_text(encoding="utf-8"))["valid"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Problem(f"{folder} does not say what it was validated on: give pairs with --pairs.") from error


def first_pairs(file: str, count: int) -> list[Pair]:
    """So many pairs of a file, from the first; all if there are no more."""
    return list(islice(read_pairs(file), count))


def count_progress_steps(sentences: int, config: ReportConfig) -> int:
    """How often `collect_report_data` tells of each run."""
    return len(_windows(sentences, config.batch)) + 1


def collect_report_data(
    folders: Sequence[Path],
    pairs: Sequence[Pair],
    *,
    file: str,
    config: ReportConfig,
    advance: Callable[[str], None],
) -> ReportData:
    """The evidence on these runs; `advance` is called whenever a part of it is there."""
    folders_by_name = Inputs(models=folders).folders_by_name()
    if len(folders_by_name) < len(folders):
        raise Problem("A run is named twice: name each folder once.")
    try:
        inspection = {
            name: inspect_model(folder) for name, folder in folders_by_name.items()
        }  # a bad folder costs no time
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
    output = _generate(model, [pair.src for pair in pairs], config, lambda: advance(f"{name} writes"))
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
    advance(f"{name} writes")
    return ReportedRun(name, folder, inspection, model, output, samples)


def _generate(
    model: Model, sources: Sequence[str], config: ReportConfig, advance: Callable[[], None]
) -> GenerationOutput:
    """The answers to all sources, the first few traced."""
    whole = GenerationOutput()
    for indices in _windows(len(sources), config.batch):
        some = [sources[index] for index in indices]
        is_traced = indices.start < TRACED_SENTENCES
        part = model.generate(some, seed=config.seed, batch=config.batch, indices=indices, trace=is_traced)
        whole.texts += part.texts
        whole.candidates += part.candidates
        whole.scores += part.scores
        whole.traces += part.traces
        whole.truncated += part.truncated
        advance()
    return whole


def _windows(count: int, batch: int) -> list[range]:
    """The places of the traced sentences, then those of some batches at a time."""
    starts = [0, *range(min(TRACED_SENTENCES, count), count, 4 * batch), count]
    return [range(start, end) for start, end in pairwise(starts) if start < end]
