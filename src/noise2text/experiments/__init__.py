"""Experiments: tables of the papers, rerun as a grid of arms and seeds, with one table at the end."""

from __future__ import annotations

from noise2text.core.errors import Problem, suggest
from noise2text.experiments import difformer, difformer_comparison, diffuseq, seqdiffuseq, thesis
from noise2text.experiments.experiment import Experiment

__all__ = ["EXPERIMENTS", "find_experiment"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for module in (difformer, difformer_comparison, seqdiffuseq, diffuseq, thesis)
    for experiment in module.EXPERIMENTS
}


def find_experiment(name: str) -> Experiment:
    """The experiment with this name."""
    if name not in EXPERIMENTS:
        raise Problem(f"There is no experiment {name!r}; {suggest(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]
