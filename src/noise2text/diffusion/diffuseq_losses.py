"""The loss terms of DiffuSeq (Gong et al., 2023), by the positions that they count, and their weightings.

    ‖z₀ − ẑ₀‖² of the target  +  −log p(w | z₀) and ‖√ᾱ_T·z₀‖² of everything     (eq. 2)

The paper, its released code and Demirag (2023) count different positions.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from noise2text.diffusion.losses import (
    LossTerm,
    MseLoss,
    PriorLoss,
    RoundingLoss,
    scored_positions,
    visible_positions,
)
from noise2text.diffusion.parameterization import Parameterization
from noise2text.nn.denoiser import NoiseLevel

__all__ = ["LOSS_TERMS", "LOSS_WEIGHTINGS", "Weighting"]

Weighting = Callable[[NoiseLevel], Tensor] | None
"""From a noise level to the weight of the squared error of ẑ₀; None is 1 everywhere."""


def equation_2_terms(weighting: Weighting, final_alpha: float) -> list[LossTerm]:
    """The terms of the paper's eq. 2: the error of the target, rounding and prior of everything."""
    return [
        MseLoss(make_mask=scored_positions, weighting=weighting),
        RoundingLoss(make_mask=visible_positions),
        PriorLoss(make_mask=visible_positions, final_alpha=final_alpha),
    ]


def algorithm_6_terms(weighting: Weighting, final_alpha: float) -> list[LossTerm]:
    """The terms of algorithm 6 (Demirag, 2023): the error of everything, rounding of the target."""
    return [
        MseLoss(make_mask=visible_positions, weighting=weighting),
        RoundingLoss(make_mask=scored_positions),
    ]


def released_terms(weighting: Weighting, final_alpha: float) -> list[LossTerm]:
    """The terms of the released code: everything counts in all three."""
    return [
        MseLoss(make_mask=visible_positions, weighting=weighting),
        RoundingLoss(make_mask=visible_positions),
        PriorLoss(make_mask=visible_positions, final_alpha=final_alpha),
    ]


def target_terms(weighting: Weighting, final_alpha: float) -> list[LossTerm]:
    """The terms of the target alone, for a source whose embeddings are not trained."""
    return [
        MseLoss(make_mask=scored_positions, weighting=weighting),
        RoundingLoss(make_mask=scored_positions),
        PriorLoss(make_mask=scored_positions, final_alpha=final_alpha),
    ]


LOSS_TERMS: dict[str, Callable[[Weighting, float], list[LossTerm]]] = {
    "equation-2": equation_2_terms,
    "algorithm-6": algorithm_6_terms,
    "released": released_terms,
    "target": target_terms,
}
"""The terms by the setting `loss_positions`."""

LOSS_WEIGHTINGS: dict[str, Callable[[Parameterization], Weighting]] = {
    "output": lambda parameterization: parameterization.weight,
    "noise": lambda parameterization: lambda level: level.snr,
    "z0": lambda parameterization: None,
}
"""Whose squared error the loss is."""
