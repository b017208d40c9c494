"""Studies: tables of the papers, run again as a grid of arms and seeds, with one table at the end."""

from __future__ import annotations

import difflib

from noise2text.core.errors import Problem
from noise2text.experiments import difformer, difformer_peers, diffuseq, seqdiffuseq, thesis
from noise2text.experiments.experiment import Experiment

__all__ = ["EXPERIMENTS", "find_experiment"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for module in (difformer, difformer_peers, seqdiffuseq, diffuseq, thesis)
    for experiment in module.EXPERIMENTS
}


def find_experiment(name: str) -> Experiment:
    """The study of this name."""
    if name not in EXPERIMENTS:
        close = difflib.get_close_matches(name, EXPERIMENTS, n=1)
        hint = f"did you mean {close[0]}? There are" if close else "there are"
        raise Problem(f"There is no experiment {name!r}; {hint} {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]
