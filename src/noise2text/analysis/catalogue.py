"""All analyses by name: what each needs, and which figure or table of the papers it makes for any model.

To add one, write a function from Inputs to findings in its own module, and add an entry here.
"""

from __future__ import annotations

from noise2text.analysis import bound, degeneration, embeddings, positions, sampling, tradeoffs
from noise2text.analysis.bleu_by_length import LengthsOptions, analyze_lengths
from noise2text.analysis.curves import CurvesOptions, analyze_curves
from noise2text.analysis.inputs import MODELS, OUTPUTS, PAIRS, RUNS, Analysis
from noise2text.analysis.traces import TracesOptions, analyze_traces
from noise2text.core.errors import Problem, suggest

__all__ = ["ANALYSES", "find_analysis"]

ANALYSES: dict[str, Analysis] = {
    analysis.name: analysis
    for analysis in (
        Analysis(
            name="lengths",
            needs=(OUTPUTS, PAIRS),
            paper_figure="Demirag (2023), table 4.3 and figures 4.1 and 4.2",
            summary="BLEU by length of the source, and whether length affects systems differently.",
            run=analyze_lengths,
            options=LengthsOptions(),
        ),
        Analysis(
            name="curves",
            needs=(RUNS,),
            paper_figure="Demirag (2023), figure 4.3",
            summary="Training curves of several runs; nll with and without padding.",
            run=analyze_curves,
            options=CurvesOptions(),
        ),
        Analysis(
            name="traces",
            needs=(MODELS, PAIRS),
            paper_figure="Difformer, table 22; SeqDiffuSeq, table 7",
            summary="The text at several steps of sampling.",
            run=analyze_traces,
            options=TracesOptions(),
        ),
        Analysis(
            name="sampling",
            needs=(MODELS, PAIRS),
            paper_figure="Difformer, figure 4; DiffuSeq, figure 5",
            summary="Quality and diversity of the estimate at each step.",
            run=sampling.analyze_sampling,
            options=sampling.SamplingOptions(),
        ),
        Analysis(
            name="from-noise",
            needs=(MODELS, PAIRS),
            paper_figure="Difformer, figure 2a",
            summary="Quality of one estimate from pure noise, for each timestep that the network is given.",
            run=sampling.analyze_from_noise,
            options=sampling.FromNoiseOptions(),
        ),
        Analysis(
            name="degeneration",
            needs=(),
            paper_figure="Difformer, figures 2b, 2c and 5, theorem 1",
            summary="Accuracy of a model that ignores the source, over time, noise and dimension.",
            run=degeneration.analyze_degeneration,
            options=degeneration.DegenerationOptions(),
        ),
        Analysis(
            name="candidates",
            needs=(MODELS, PAIRS),
            paper_figure="DiffuSeq, figure 3; SeqDiffuSeq, figure 3",
            summary="Quality and diversity against the number of candidates.",
            run=tradeoffs.analyze_candidates,
            options=tradeoffs.CandidateOptions(),
        ),
        Analysis(
            name="steps",
            needs=(MODELS, PAIRS),
            paper_figure="Difformer, table 8; DiffuSeq, figure 6",
            summary="Quality and speed against the number of steps.",
            run=tradeoffs.analyze_steps,
            options=tradeoffs.StepOptions(),
        ),
        Analysis(
            name="diversity",
            needs=(MODELS, PAIRS),
            paper_figure="DiffuSeq, figure 4; Difformer, figure 3",
            summary="Quality against diversity, one point per model.",
            run=tradeoffs.analyze_diversity,
            options=tradeoffs.DiversityOptions(),
        ),
        Analysis(
            name="positions",
            needs=(MODELS, PAIRS),
            paper_figure="SeqDiffuSeq, figure 2",
            summary="The loss at each time and position, and the learned schedule.",
            run=positions.analyze_positions,
            options=positions.PositionOptions(),
        ),
        Analysis(
            name="bound",
            needs=(MODELS, PAIRS),
            paper_figure=bound.PAPER_FIGURE,
            summary="The bound of the likelihood in nats per token, by term and by time.",
            run=bound.analyze_bound,
            options=bound.BoundOptions(),
        ),
        Analysis(
            name="embeddings",
            needs=(MODELS,),
            paper_figure="Difformer, section 3.1 and table 1",
            summary="Nearest neighbors of tokens, and anisotropy during training.",
            run=embeddings.analyze_embeddings,
            options=embeddings.EmbeddingOptions(),
        ),
    )
}


def find_analysis(name: str) -> Analysis:
    """The analysis with this name."""
    if name not in ANALYSES:
        raise Problem(f"There is no analysis {name!r}; {suggest(name, ANALYSES)}")
    return ANALYSES[name]
