"""All analyses by name: what each needs, and which figure or table of the papers it makes for any system.

A new one is a module with a function from Inputs to findings, and an entry here.
"""

from __future__ import annotations

import difflib

from noise2text.analysis.curves import CurvesOptions, curves
from noise2text.analysis.inputs import MODELS, OUTPUTS, PAIRS, RUNS, Analysis
from noise2text.analysis.lengths import LengthsOptions, lengths
from noise2text.analysis.traces import TracesOptions, traces
from noise2text.problem import Problem

__all__ = ["ANALYSES", "find_analysis"]

ANALYSES: dict[str, Analysis] = {
    analysis.name: analysis
    for analysis in (
        Analysis(
            name="lengths",
            needs=(OUTPUTS, PAIRS),
            after="thesis, table 4.3 and figures 4.1 and 4.2",
            line="BLEU by length of the source, and whether systems lose differently with length.",
            run=lengths,
            options=LengthsOptions(),
        ),
        Analysis(
            name="curves",
            needs=(RUNS,),
            after="thesis, figure 4.3",
            line="Training curves of several runs; nll with and without padding.",
            run=curves,
            options=CurvesOptions(),
        ),
        Analysis(
            name="traces",
            needs=(MODELS, PAIRS),
            after="Difformer, table 22; SeqDiffuSeq, table 7",
            line="What the text looks like at steps on the way from noise.",
            run=traces,
            options=TracesOptions(),
        ),
    )
}


def find_analysis(name: str) -> Analysis:
    """The analysis of a name."""
    if name not in ANALYSES:
        close = difflib.get_close_matches(name, ANALYSES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(ANALYSES)}."
        raise Problem(f"There is no analysis {name!r}; {hint}")
    return ANALYSES[name]
