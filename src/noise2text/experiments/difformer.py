"""The experiments of Difformer (Gao et al., 2024): losses, noise rescaling, embeddings, beams, lengths."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from noise2text.experiments.experiment import Arm, Changes, Experiment, ModelSpec, TrainedSetting

__all__ = ["BEAM_10", "EXPERIMENTS", "PAPER", "PAPER_BLEU"]

PAPER = "Difformer (Gao et al., 2024)"
PAPER_BLEU = "bleu-fairseq"  # tokenized BLEU; a date is one token, so that sacrebleu's stands for it there
TOKENIZED_BLEU = "tokenized BLEU on IWSLT14 De-En, b = 10, the mean of three runs."
BEAM_10: Changes = {"length_beam": 5, "noise_beam": 2}  # b = 10
ONE_LENGTH: Changes = {"length_beam": 1, "noise_beam": 1}  # all dates have the same length
NOT_RESCALED: Changes = {"noise_factor": 1.0}
VLB: Changes = {"anchor_weight": 0.0}
ROUNDING: Changes = {"anchor_weight": 0.0, "rounding_weight": 1.0}
SEARCHED: Changes = {"noise_factor": None}  # the preset's factor is of its schedule, dimension and DGS


def _difformer_arm(name: str, changes: Changes, **paper: float) -> Arm:
    """An arm with its own Difformer, decoded with b = 10."""
    numbers = {PAPER_BLEU if measure == "bleu" else measure: number for measure, number in paper.items()}
    return Arm(name, ModelSpec("difformer", changes), BEAM_10, ONE_LENGTH, numbers)


_rescaling_table = partial(
    Experiment,
    paper=PAPER,
    metric_note=TOKENIZED_BLEU,
    measures=(PAPER_BLEU, "noise_factor"),
    tiny_measures=("bleu", "exact_match", "noise_factor"),
)
"""A table about noise rescaling, which also shows the noise factor of each arm."""

_LOSSES = Experiment(
    name="difformer-losses",
    paper=PAPER,
    table="tables 1 and 12",
    summary="What keeps the embeddings from collapsing: the loss, or frozen embeddings.",
    claim="without the anchor loss they collapse; frozen ones do not, but are worse than learned ones.",
    metric_note=f"{TOKENIZED_BLEU} The captions say linear, but 34.48 is table 13's number of sqrt, "
    "the schedule here.",
    measures=(PAPER_BLEU, "anisotropy", "target_anisotropy"),
    tiny_measures=("bleu", "exact_match", "anisotropy", "target_anisotropy"),
    presets={"cmlm": "iwslt14-de-en"},
    arms=(
        _difformer_arm("vlb", VLB, bleu=0.07, anisotropy=0.99),
        _difformer_arm("vlb + rounding", ROUNDING, bleu=27.89, anisotropy=0.32),
        _difformer_arm("vlb + anchor", {}, bleu=34.48, anisotropy=0.03),
        Arm(
            "vlb + anchor, a CMLM's embeddings, fixed",
            ModelSpec(
                "difformer",
                {"freeze_embeddings": True, "embedding_dim": 512, **SEARCHED},
                {"embedding_dim": 128},
                embeddings=ModelSpec("cmlm", {"model_dim": 512}, {"model_dim": 128}),
            ),
            BEAM_10,
            ONE_LENGTH,
            {PAPER_BLEU: 30.14, "anisotropy": 0.02},
        ),
    ),
)

_COMPONENTS = _rescaling_table(
    name="difformer-components",
    table="table 7",
    summary="The anchor loss and noise rescaling, each with and without the other.",
    claim="each of them helps, and both together help most.",
    arms=(
        _difformer_arm("rounding, not rescaled", {**ROUNDING, **NOT_RESCALED}, bleu=16.96),
        _difformer_arm("anchor, not rescaled", NOT_RESCALED, bleu=22.70),
        _difformer_arm("rounding, rescaled", ROUNDING, bleu=27.89),
        _difformer_arm("anchor, rescaled", {}, bleu=34.48),
    ),
)

_FACTORS: Mapping[str, tuple[tuple[float | None, float, float], ...]] = {
    "sqrt": ((0.05, 7.0, 33.88), (0.15, 4.0, 34.48), (0.50, 2.0, 32.54), (None, 1.0, 22.70)),
    "linear": ((0.05, 21.0, 31.99), (0.15, 6.0, 33.09), (None, 1.0, 32.21)),
    "cosine": ((0.05, 41.0, 31.64), (0.15, 12.5, 33.36), (0.50, 3.0, 33.01), (None, 1.0, 26.61)),
}
"""Table 13: DGS_MAX (None: not rescaled), the noise factor and BLEU by schedule."""


def _rescaling_arm(schedule: str, dgs: float | None, *, noise_factor: float, bleu: float) -> Arm:
    label = "not rescaled" if dgs is None else f"DGS {dgs:.2f}"
    changes: dict[str, Any] = {"schedule": schedule} if schedule != "sqrt" else {}
    changes |= NOT_RESCALED if dgs is None else {} if dgs == 0.15 else {"max_dgs": dgs}
    if changes and dgs is not None:
        changes |= SEARCHED
    return _difformer_arm(f"{schedule}, {label}", changes, bleu=bleu, noise_factor=noise_factor)


_RESCALING = _rescaling_table(
    name="difformer-rescaling",
    table="tables 2, 9 and 13",
    summary="Three schedules, rescaled to three degeneration scores, and not rescaled.",
    claim="without rescaling sqrt is worst and linear best; rescaled to 0.15, sqrt is best.",
    tiny={"difformer": {"optim.steps": 1_500}},  # large factors need more steps
    arms=tuple(
        _rescaling_arm(schedule, dgs, noise_factor=noise_factor, bleu=bleu)
        for schedule, rows in _FACTORS.items()
        for dgs, noise_factor, bleu in rows
    ),
)

_DIMENSION = _rescaling_table(
    name="difformer-dimension",
    table="table 14",
    summary="The dimension of the embeddings, the noise rescaled for each.",
    claim="rescaled, 128 to 512 dimensions are about equal; 64 are too few.",
    arms=(
        _difformer_arm("d = 64", {"embedding_dim": 64, **SEARCHED}, bleu=32.11, noise_factor=2.5),
        _difformer_arm("d = 128", {}, bleu=34.48, noise_factor=4.0),
        _difformer_arm("d = 256", {"embedding_dim": 256, **SEARCHED}, bleu=34.41, noise_factor=6.0),
        _difformer_arm("d = 512", {"embedding_dim": 512, **SEARCHED}, bleu=34.33, noise_factor=8.5),
    ),
)

_BEAMS = Experiment(
    name="difformer-beams",
    paper=PAPER,
    table="table 15",
    summary="The length beam b₁ and the noise beam b₂ of one model.",
    claim="both help, lengths more than noises; beyond b = 10 nothing is gained.",
    metric_note="tokenized BLEU on IWSLT14 De-En, the mean of three runs.",
    measures=(PAPER_BLEU,),
    tiny_measures=("bleu", "exact_match"),
    arms=tuple(
        Arm(
            f"b₁ = {lengths}, b₂ = {noises}",
            ModelSpec("difformer"),
            {"length_beam": lengths, "noise_beam": noises},
            paper={PAPER_BLEU: bleu},
        )
        for lengths, noises, bleu in (
            (1, 1, 32.91),
            (1, 9, 33.53),
            (3, 3, 34.33),
            (5, 2, 34.43),
            (9, 1, 34.48),
            (5, 4, 34.52),
            (7, 3, 34.48),
            (9, 2, 34.44),
            (10, 5, 34.52),
        )
    ),
    # In characters all dates have one length; in BPE tokens they have several.
    tiny={"difformer": {"tokenizer": "bpe", "vocabulary": 300}},
)

_SAMPLING = Experiment(
    name="difformer-sampling",
    paper=PAPER,
    table="table 16",
    summary="Noise rescaling also in sampling.",
    claim="it is harmful: sampling does not need large noise.",
    metric_note=TOKENIZED_BLEU,
    measures=(PAPER_BLEU,),
    tiny_measures=("bleu", "exact_match"),
    arms=(
        Arm("not in sampling", ModelSpec("difformer"), BEAM_10, ONE_LENGTH, {PAPER_BLEU: 34.48}),
        Arm(
            "in sampling",
            ModelSpec("difformer"),
            {**BEAM_10, "sampling_noise_factor": TrainedSetting("noise_factor")},
            ONE_LENGTH,
            {PAPER_BLEU: 33.51},
        ),
    ),
)

_PRESERVING = _rescaling_table(
    name="difformer-preserving",
    table="table 17",
    summary="Rescaling by eq. 3 and by eq. 8, which preserves the variance.",
    claim="both work about equally well.",
    arms=(
        _difformer_arm("DGS 0.05", {"max_dgs": 0.05, **SEARCHED}, bleu=33.88, noise_factor=7.0),
        _difformer_arm(
            "DGS 0.05, preserving",
            {"max_dgs": 0.05, "variance_preserving": True, **SEARCHED},
            bleu=33.80,
            noise_factor=9.5,
        ),
        _difformer_arm("DGS 0.15", {}, bleu=34.48, noise_factor=4.0),
        _difformer_arm(
            "DGS 0.15, preserving", {"variance_preserving": True, **SEARCHED}, bleu=33.99, noise_factor=4.5
        ),
        _difformer_arm("DGS 0.50", {"max_dgs": 0.5, **SEARCHED}, bleu=32.54, noise_factor=2.0),
        _difformer_arm(
            "DGS 0.50, preserving",
            {"max_dgs": 0.5, "variance_preserving": True, **SEARCHED},
            bleu=31.77,
            noise_factor=2.0,
        ),
        _difformer_arm("not rescaled", NOT_RESCALED, bleu=22.70, noise_factor=1.0),
    ),
)

_LENGTHS = Experiment(
    name="difformer-lengths",
    paper=PAPER,
    table="table 18",
    summary="Texts of a requested length.",
    claim="the texts have the requested length.",
    metric_note="none; the table shows one sentence at three lengths.",
    measures=("length_match", "bleu"),
    arms=tuple(
        Arm(
            f"length {length}", ModelSpec("difformer"), {"length": length, "noise_beam": 2}, {"noise_beam": 1}
        )
        for length in (5, 10, 15)
    ),
)


EXPERIMENTS = (_LOSSES, _COMPONENTS, _RESCALING, _DIMENSION, _BEAMS, _SAMPLING, _PRESERVING, _LENGTHS)
