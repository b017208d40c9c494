"""The selectors by the names that the setting `select` has for them.

A new one is a class with the methods of `Selector`, a line in `SELECTORS`, and a name in the `choices` of
`select` in the generation configs of the models that may use it (`config_groups.py`, `config.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noise2text.generation.denoising_likelihood import NOISE_TIME
from noise2text.generation.faithful_copies import FaithfulCopies
from noise2text.generation.mbr import MBR
from noise2text.generation.mbr_by_length import MBRByLength
from noise2text.generation.selection import BestScore, Selector
from noise2text.generation.weighted_mbr import WeightedMBR
from noise2text.preprocessing.preprocessor import PreprocessingConfig
from noise2text.preprocessing.text_rules import load_text_rules

__all__ = ["SELECTORS", "build_mbr", "build_weighted_mbr", "prefer_faithful_copies"]


def build_mbr(config: Any) -> MBR:
    """The MBR selector of a generation config."""
    return MBR(utility=config.utility, candidate_is=config.candidate_is, self_pair=config.self_pair)


def build_weighted_mbr(config: Any) -> WeightedMBR:
    """MBR whose weights are the model's own denoising likelihoods."""
    return WeightedMBR(build_mbr(config), f"own,time:{NOISE_TIME}")


SELECTORS: dict[str, Callable[[Any], Selector]] = {
    "mbr": build_mbr,
    "mbr-by-length": lambda config: MBRByLength(build_mbr(config)),
    "weighted-mbr": build_weighted_mbr,
    "score": lambda config: BestScore(),
}


def prefer_faithful_copies(selector: Selector, config: Any) -> Selector:
    """The selector, for the candidates that copy best if the generation config preprocesses `copies`."""
    if not isinstance(config, PreprocessingConfig) or "copies" not in config.preprocessing_steps:
        return selector
    return FaithfulCopies(selector, load_text_rules(config.text_rules))
