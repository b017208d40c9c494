"""The studies of Difformer (Gao et al., 2024): losses, noise rescaling, embeddings, beams, steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noise2text.experiments.experiment import Arm, Changes, Model, Own, Study

__all__ = ["PAPER", "STUDIES", "TEN"]

PAPER = "Difformer (Gao et al., 2024)"
TOKENISED = "tokenised BLEU on IWSLT14 De-En, b = 10, the mean of three runs."
TEN: Changes = {"length_beam": 5, "noise_beam": 2}  # b = 10
ONE_LENGTH: Changes = {"length_beam": 1, "noise_beam": 1}  # all dates are equally long
PLAIN: Changes = {"factor": 1.0}  # not rescaled


def _trained(name: str, changes: Changes, **paper: float) -> Arm:
    """An arm with a Difformer of its own, decoded as in most tables."""
    return Arm(name, Model("difformer", changes), TEN, ONE_LENGTH, paper)


_LOSSES = Study(
    name="difformer-losses",
    paper=PAPER,
    table="tables 1 and 12",
    line="What keeps the embeddings from collapsing: the loss, or embeddings that are not trained.",
    finding="without the anchor loss they collapse; fixed ones do not, but are worse than learned ones.",
    about=f"{TOKENISED} The captions say linear, but 34.48 is table 13's number of sqrt, the schedule here.",
    measures=("bleu", "exact", "anisotropy", "target_anisotropy"),
    presets={"cmlm": "iwslt14-de-en"},
    arms=(
        _trained("vlb", {"losses": "vlb"}, bleu=0.07, anisotropy=0.99),
        _trained("vlb + rounding", {"losses": "vlb+rounding"}, bleu=27.89, anisotropy=0.32),
        _trained("vlb + anchor", {}, bleu=34.48, anisotropy=0.03),
        Arm(
            "vlb + anchor, a CMLM's embeddings, fixed",
            Model(
                "difformer",
                {"freeze_embeddings": True, "embedding": 512},
                {"embedding": 128},
                embeddings=Model("cmlm", {"width": 512}, {"width": 128}),
            ),
            TEN,
            ONE_LENGTH,
            {"bleu": 30.14, "anisotropy": 0.02},
        ),
    ),
)

_COMPONENTS = Study(
    name="difformer-components",
    paper=PAPER,
    table="table 7",
    line="The anchor loss and noise rescaling, each with and without the other.",
    finding="each of them helps, and both together help most.",
    about=TOKENISED,
    measures=("bleu", "exact", "factor"),
    arms=(
        _trained("rounding, not rescaled", {"losses": "vlb+rounding", **PLAIN}, bleu=16.96),
        _trained("anchor, not rescaled", PLAIN, bleu=22.70),
        _trained("rounding, rescaled", {"losses": "vlb+rounding"}, bleu=27.89),
        _trained("anchor, rescaled", {}, bleu=34.48),
    ),
)

_FACTORS: Mapping[str, tuple[tuple[float | None, float, float], ...]] = {
    "sqrt": ((0.05, 7.0, 33.88), (0.15, 4.0, 34.48), (0.50, 2.0, 32.54), (None, 1.0, 22.70)),
    "linear": ((0.05, 21.0, 31.99), (0.15, 6.0, 33.09), (None, 1.0, 32.21)),
    "cosine": ((0.05, 41.0, 31.64), (0.15, 12.5, 33.36), (0.50, 3.0, 33.01), (None, 1.0, 26.61)),
}
"""Table 13: DGS_MAX (none: not rescaled), the factor and BLEU by schedule."""


def _rescaled(schedule: str, score: float | None, *, factor: float, bleu: float) -> Arm:
    told = "not rescaled" if score is None else f"DGS {score:.2f}"
    changes: dict[str, Any] = {"schedule": schedule} if schedule != "sqrt" else {}
    changes |= PLAIN if score is None else {} if score == 0.15 else {"dgs_max": score}
    return _trained(f"{schedule}, {told}", changes, bleu=bleu, factor=factor)


_RESCALING = Study(
    name="difformer-rescaling",
    paper=PAPER,
    table="tables 2, 9 and 13",
    line="Three schedules, rescaled to three degeneration scores and not at all.",
    finding="without rescaling sqrt is worst and linear best; rescaled to 0.15, sqrt is best of all.",
    about=TOKENISED,
    tiny={"difformer": {"steps": 1_500}},  # large factors learn slowly
    measures=("bleu", "exact", "factor"),
    arms=tuple(
        _rescaled(schedule, score, factor=factor, bleu=bleu)
        for schedule, rows in _FACTORS.items()
        for score, factor, bleu in rows
    ),
)

_DIMENSION = Study(
    name="difformer-dimension",
    paper=PAPER,
    table="table 14",
    line="The dimension of the embeddings, the noise rescaled for each.",
    finding="rescaled, models of 128 to 512 dimensions are about equal; 64 are too few.",
    about=TOKENISED,
    measures=("bleu", "exact", "factor"),
    arms=(
        _trained("d = 64", {"embedding": 64}, bleu=32.11, factor=2.5),
        _trained("d = 128", {}, bleu=34.48, factor=4.0),
        _trained("d = 256", {"embedding": 256}, bleu=34.41, factor=6.0),
        _trained("d = 512", {"embedding": 512}, bleu=34.33, factor=8.5),
    ),
)

_BEAMS = Study(
    name="difformer-beams",
    paper=PAPER,
    table="table 15",
    line="The length beam b₁ and the noise beam b₂ of one model.",
    finding="both help, lengths more than noises, and from b = 10 on no more is gained.",
    about="tokenised BLEU on IWSLT14 De-En, the mean of three runs.",
    arms=tuple(
        Arm(
            f"b₁ = {lengths}, b₂ = {noises}",
            Model("difformer"),
            {"length_beam": lengths, "noise_beam": noises},
            paper={"bleu": bleu},
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
    # Characters would give all dates one length; pieces of them give several.
    tiny={"difformer": {"tokenizer": "bpe", "vocabulary": 300}},
)

_SAMPLING = Study(
    name="difformer-sampling",
    paper=PAPER,
    table="table 16",
    line="Noise rescaling in sampling, too.",
    finding="it does harm: the way down needs no large noise.",
    about=TOKENISED,
    arms=(
        Arm("not in sampling", Model("difformer"), TEN, ONE_LENGTH, {"bleu": 34.48}),
        Arm("in sampling", Model("difformer"), {**TEN, "factor": Own("factor")}, ONE_LENGTH, {"bleu": 33.51}),
    ),
)

_PRESERVING = Study(
    name="difformer-preserving",
    paper=PAPER,
    table="table 17",
    line="Rescaling by eq. 3, and by eq. 8, which preserves the variance.",
    finding="both do about the same.",
    about=TOKENISED,
    measures=("bleu", "exact", "factor"),
    arms=(
        _trained("DGS 0.05", {"dgs_max": 0.05}, bleu=33.88, factor=7.0),
        _trained(
            "DGS 0.05, preserving", {"dgs_max": 0.05, "variance_preserving": True}, bleu=33.80, factor=9.5
        ),
        _trained("DGS 0.15", {}, bleu=34.48, factor=4.0),
        _trained("DGS 0.15, preserving", {"variance_preserving": True}, bleu=33.99, factor=4.5),
        _trained("DGS 0.50", {"dgs_max": 0.5}, bleu=32.54, factor=2.0),
        _trained(
            "DGS 0.50, preserving", {"dgs_max": 0.5, "variance_preserving": True}, bleu=31.77, factor=2.0
        ),
        _trained("not rescaled", PLAIN, bleu=22.70, factor=1.0),
    ),
)

_LENGTHS = Study(
    name="difformer-lengths",
    paper=PAPER,
    table="table 18",
    line="Texts of a length that was asked for.",
    finding="the length of the texts matches what was asked for.",
    about="none; the table shows one sentence at three lengths.",
    measures=("kept", "bleu"),
    arms=tuple(
        Arm(f"length {length}", Model("difformer"), {"length": length, "noise_beam": 2}, {"noise_beam": 1})
        for length in (5, 10, 15)
    ),
)


STUDIES = (
    _LOSSES,
    _COMPONENTS,
    _RESCALING,
    _DIMENSION,
    _BEAMS,
    _SAMPLING,
    _PRESERVING,
    _LENGTHS,
)
