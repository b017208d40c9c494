"""An analysis and its inputs.

    Analysis(name, needs, paper_figure, summary, run, options)        run(Inputs, options) → findings

An analysis declares what it needs (texts of systems, runs, models, pairs), so that one check can report what
is missing. Its options are a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noise2text.analysis.finding import Finding
from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair

__all__ = ["MODELS", "OUTPUTS", "PAIRS", "RUNS", "Analysis", "Inputs", "Need"]


@dataclass(frozen=True)
class Inputs:
    """The inputs of an analysis; each analysis takes what it needs."""

    models: Sequence[Path] = ()  # folders of models or runs
    outputs: Mapping[str, Sequence[str]] = field(default_factory=dict)  # texts by the name of the system
    pairs: Sequence[Pair] = ()  # sources and references, in the order of the texts
    options: Mapping[str, Any] = field(default_factory=dict)  # changes to the settings of the analysis
    seed: int = 0
    device: str | None = None

    def folders_by_name(self) -> dict[str, Path]:
        """The folders by their last part, or by their path where two would share a name."""
        short = [folder.resolve().name for folder in self.models]
        return {
            name if short.count(name) == 1 else str(folder): folder
            for name, folder in zip(short, self.models, strict=True)
        }


@dataclass(frozen=True)
class Need:
    """A field of the inputs that must not be empty, and how to provide it."""

    name: str
    field: str
    remedy: str


MODELS = Need("models", "models", "add a model folder after the name of the analysis")
RUNS = Need("runs", "models", "add the folder of a training run after the name of the analysis")
OUTPUTS = Need("outputs", "outputs", "give a system's texts as --hyp NAME=FILE")
PAIRS = Need("pairs", "pairs", "give sources and references as --test FILE")


@dataclass(frozen=True)
class Analysis:
    """A figure or table of the papers that can be made for any model; call it to make it."""

    name: str
    needs: tuple[Need, ...]
    paper_figure: str  # the paper's figure or table
    summary: str  # what it shows
    run: Callable[[Inputs, Any], list[Finding]]
    options: Any  # the defaults, a frozen dataclass; `run` gets them with the user's changes

    def __call__(self, inputs: Inputs) -> list[Finding]:
        """The findings; before any work is done, a Problem names a missing input or an unknown setting."""
        options = apply_overrides(self.options, inputs.options, origin="analyse")
        for need in self.needs:
            if not getattr(inputs, need.field):
                raise Problem(f"The analysis {self.name} needs {need.name}: {need.remedy}.")
        return self.run(inputs, options)
