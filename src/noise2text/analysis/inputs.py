"""What an analysis is, and what it is given.

    Analysis(name, needs, after, line, run, options)        run(Inputs) → findings

An analysis says what it cannot do without (texts of systems, runs, models, pairs), so that one check before
all of them refuses what is missing in one sentence. Its own options are a frozen dataclass of settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from noise2text.analysis.finding import Finding
from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair

__all__ = ["MODELS", "OUTPUTS", "PAIRS", "RUNS", "Analysis", "Inputs", "Need", "NoOptions"]

S = TypeVar("S")


@dataclass(frozen=True)
class Inputs:
    """What an analysis looks at; each one takes what it needs."""

    models: Sequence[Path] = ()  # folders of models or of runs
    outputs: Mapping[str, Sequence[str]] = field(default_factory=dict)  # a system's texts by its name
    pairs: Sequence[Pair] = ()  # sources and references, in the order of the texts
    options: Mapping[str, Any] = field(default_factory=dict)  # changes to the analysis's own settings
    seed: int = 0
    device: str | None = None

    def chosen(self, defaults: S) -> S:
        """An analysis's settings, changed by the options."""
        return apply_overrides(defaults, self.options, origin="analyse")

    def folders_by_name(self) -> dict[str, Path]:
        """The folders by their short names, by whole paths where two would share one."""
        short = [folder.resolve().name for folder in self.models]
        return {
            name if short.count(name) == 1 else str(folder): folder
            for name, folder in zip(short, self.models, strict=True)
        }


@dataclass(frozen=True)
class Need:
    """A field of the inputs that must not be empty, and how to give it."""

    name: str
    field: str
    remedy: str


MODELS = Need("models", "models", "name a model folder after the analysis")
RUNS = Need("runs", "models", "name the folder of a training run after the analysis")
OUTPUTS = Need("outputs", "outputs", "give what a system wrote as --output NAME=FILE")
PAIRS = Need("pairs", "pairs", "give sources and references as --pairs FILE")


@dataclass(frozen=True)
class NoOptions:
    """The settings of an analysis that has none."""


@dataclass(frozen=True)
class Analysis:
    """A figure or table of the papers that can be made for any system; calling it makes it."""

    name: str
    needs: tuple[Need, ...]
    paper_figure: str  # the paper's figure or table
    summary: str  # what it shows
    run: Callable[[Inputs], list[Finding]]
    options: Any = NoOptions()  # a frozen dataclass; `Inputs.chosen` changes it

    def __call__(self, inputs: Inputs) -> list[Finding]:
        """The findings, or a Problem that names what is missing or unknown before any work is done."""
        inputs.chosen(self.options)
        for need in self.needs:
            if not getattr(inputs, need.field):
                raise Problem(f"The analysis {self.name} needs {need.name}: {need.remedy}.")
        return self.run(inputs)
