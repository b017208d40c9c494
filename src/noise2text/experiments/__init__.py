"""Studies: tables of the papers, run again as a grid of arms and seeds, with one table at the end."""

from __future__ import annotations

import difflib

from noise2text.core.errors import Problem
from noise2text.experiments import difformer, difformer_peers, diffuseq, seqdiffuseq, thesis
from noise2text.experiments.experiment import Study

__all__ = ["STUDIES", "find_study"]

STUDIES: dict[str, Study] = {
    study.name: study
    for room in (difformer, difformer_peers, seqdiffuseq, diffuseq, thesis)
    for study in room.STUDIES
}


def find_study(name: str) -> Study:
    """The study of this name."""
    if name not in STUDIES:
        close = difflib.get_close_matches(name, STUDIES, n=1)
        hint = f"did you mean {close[0]}? There are" if close else "there are"
        raise Problem(f"There is no experiment {name!r}; {hint} {', '.join(STUDIES)}.")
    return STUDIES[name]
