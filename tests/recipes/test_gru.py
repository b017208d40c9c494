"""The GRU has the size that DiffuSeq's table 4 gives, and refuses what it cannot be."""

from __future__ import annotations

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.data.tokenizer import learn_characters
from noise2text.recipes.gru import PRESETS, build


def test_qqp_has_65_million_parameters_with_berts_vocabulary() -> None:
    tokenizer = learn_characters(["".join(chr(0x4E00 + i) for i in range(30_522 - 6))])
    assert len(tokenizer) == PRESETS["qqp"].data.vocabulary == 30_522
    with torch.device("meta"):
        model = build(PRESETS["qqp"], tokenizer)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert round(parameters / 1e6) in (64, 65, 66)


def test_a_width_that_two_directions_cannot_share_is_refused() -> None:
    with pytest.raises(Problem, match="model_dim must be even"):
        PRESETS["tiny"].replace(model_dim=33)
