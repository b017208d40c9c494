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

from noise2text.analysis.inputs import Inputs
from noise2text.analysis.samples import draw_samples, references_of, those_known
from noise2text.commands.inspect import look
from noise2text.core.config import change
from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair, read_pairs
from noise2text.data.text_files import parts_of
from noise2text.models import Generated, System
from noise2text.models.folder import load

__all__ = [
    "FEW",
    "SAMPLES",
    "TRACED",
    "Evidence",
    "Subject",
    "Terms",
    "first_pairs",
    "gather",
    "pairs_of",
    "parts",
]

TRACED = 3  # sentences whose denoising is shown
FEW = 50  # sentences of the figures that run models
SAMPLES = 3  # lone texts a source (DiffuSeq, table 1)
LONE = {"noise_beam": 1, "length_beam": 1}


@dataclass(frozen=True)
class Terms:
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
class Subject:
    """A run on the page: what is known of it, and what it wrote."""

    name: str
    folder: Path
    seen: Mapping[str, Mapping[str, Any]]  # model, settings and generation, as `inspect` shows them
    system: System  # which was made to write a lone text, for the figures
    made: Generated  # to all sources, by its own settings; the first few are traced
    samples: Sequence[Generated]  # lone texts to the first sources, traced; a seed each


@dataclass(frozen=True)
class Evidence:
    """All that sections are made of."""

    subjects: Sequence[Subject]
    pairs: Sequence[Pair]
    file: str  # the pairs' name
    terms: Terms

    @property
    def sources(self) -> list[str]:
        return [pair.src for pair in self.pairs]

    @property
    def references(self) -> list[tuple[str, ...]]:
        return references_of(self.pairs)

    @property
    def few(self) -> Sequence[Pair]:
        """The pairs of the figures that run models."""
        return self.pairs[:FEW]

    @property
    def systems(self) -> dict[str, System]:
        return {each.name: each.system for each in self.subjects}

    @property
    def texts(self) -> dict[str, list[str]]:
        """What each run chose."""
        return {each.name: each.made.texts for each in self.subjects}

    def counted(self) -> str:
        """How many sentences there are, in words."""
        return "1 sentence" if len(self.pairs) == 1 else f"{len(self.pairs):,} sentences"

    def only(self, subjects: Sequence[Subject]) -> Evidence:
        """The same of some of the runs."""
        return dataclasses.replace(self, subjects=subjects)

    def inputs(self, **options: Any) -> Inputs:
        """The runs and the pairs as an analysis takes them."""
        return Inputs(
            models=[each.folder for each in self.subjects],
            outputs=self.texts,
            pairs=self.pairs,
            options=options,
            seed=self.terms.seed,
            device=self.terms.device,
        )


def pairs_of(folders: Sequence[Path]) -> str:
    """The file of pairs that the runs were validated on."""
    found = {str(folder): _valid_of(folder) for folder in folders}
    if len(set(found.values())) > 1:
        told = " and ".join(sorted(set(found.values())))
        raise Problem(f"The runs were validated on different pairs, {told}: say which with --pairs.")
    folder, file = next(iter(found.items()))
    missing = [part for part in parts_of(file) if not Path(part).is_file()]
    if missing:
        raise Problem(
            f"The validation pairs of {folder}, {file}, are no file here: give others with --pairs."
        )
    return file


def _valid_of(folder: Path) -> str:
    try:
        return str(json.loads((folder / "run.json").read_text(encoding="utf-8"))["valid"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Problem(f"{folder} does not say what it was validated on: give pairs with --pairs.") from error


def first_pairs(file: str, count: int) -> list[Pair]:
    """So many pairs of a file, from the first; all if there are no more."""
    return list(islice(read_pairs(file), count))


def parts(sentences: int, terms: Terms) -> int:
    """How often `gather` tells of each run."""
    return len(_windows(sentences, terms.batch)) + 1


def gather(
    folders: Sequence[Path], pairs: Sequence[Pair], *, file: str, terms: Terms, tell: Callable[[str], None]
) -> Evidence:
    """The evidence on these runs; `tell` is called whenever a part of it is there."""
    named = Inputs(models=folders).named()
    if len(named) < len(folders):
        raise Problem("A run is named twice: name each folder once.")
    try:
        seen = {name: look(folder) for name, folder in named.items()}  # a bad folder costs no time
    except OSError as error:
        raise Problem(f"{error.filename} cannot be read: {error.strerror}.") from error
    subjects = [_subject(name, named[name], seen[name], pairs, terms, tell) for name in named]
    return Evidence(subjects, pairs, file, terms)


def _subject(
    name: str,
    folder: Path,
    seen: Mapping[str, Mapping[str, Any]],
    pairs: Sequence[Pair],
    terms: Terms,
    tell: Callable[[str], None],
) -> Subject:
    system = load(folder, device=terms.device)
    made = _answers(system, [pair.src for pair in pairs], terms, lambda: tell(f"{name} writes"))
    system.how = change(system.how, those_known(system, **LONE), where=name)
    samples = draw_samples(system, pairs[:FEW], count=SAMPLES, seed=terms.seed, batch=terms.batch, trace=True)
    tell(f"{name} writes")
    return Subject(name, folder, seen, system, made, samples)


def _answers(system: System, sources: Sequence[str], terms: Terms, told: Callable[[], None]) -> Generated:
    """The answers to all sources, the first few traced."""
    whole = Generated()
    for places in _windows(len(sources), terms.batch):
        some = [sources[place] for place in places]
        is_traced = places.start < TRACED
        part = system.generate(some, seed=terms.seed, batch=terms.batch, places=places, trace=is_traced)
        whole.texts += part.texts
        whole.candidates += part.candidates
        whole.scores += part.scores
        whole.traces += part.traces
        whole.truncated += part.truncated
        told()
    return whole


def _windows(count: int, batch: int) -> list[range]:
    """The places of the traced sentences, then those of some batches at a time."""
    starts = [0, *range(min(TRACED, count), count, 4 * batch), count]
    return [range(start, end) for start, end in pairwise(starts) if start < end]
