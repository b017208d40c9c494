"""Experiments: tables of the papers, rerun as a grid of arms and seeds, with one table at the end."""

from __future__ import annotations

from noise2text.core.errors import Problem, suggest
from noise2text.experiments import (
    crossings,
    difformer,
    difformer_comparison,
    difformer_main,
    diffuseq,
    diffuseq_main,
    seqdiffuseq,
    seqdiffuseq_main,
    shuffled_sources,
    thesis,
)
from noise2text.experiments.experiment import Experiment

__all__ = ["EXPERIMENTS", "find_experiment"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for module in (
        *(difformer_main, difformer, difformer_comparison),
        *(diffuseq_main, diffuseq, seqdiffuseq_main, seqdiffuseq, thesis),
        *(crossings, shuffled_sources),
    )
    for experiment in module.EXPERIMENTS
}


def find_experiment(name: str) -> Experiment:
    """The experiment with this name."""
    if name not in EXPERIMENTS:
        raise Problem(
            f"There is no experiment {name!r}; {suggest(name, EXPERIMENTS)} `noise2text experiment --list` "
            "says what each is."
        )
    return EXPERIMENTS[name]
