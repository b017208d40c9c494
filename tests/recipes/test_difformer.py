"""Difformer's settings are those of its table 21; its parts are those of its section 3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from noise2text import load, train
from noise2text.core.config import get_setting
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.schedules import Rescaled, SqrtSchedule, VariancePreserving
from noise2text.models import LengthPredictingModel
from noise2text.models.registry import find_recipe
from noise2text.recipes.difformer import PRESETS, DifformerConfig, resolve

from ..conftest import SMALL, Make

COLUMNS = ["wmt14-en-de", "wmt16-en-ro", "iwslt14-de-en", "gigaword", "qqp", "wiki-auto", "quasar-t"]
TABLE_21: dict[str, list[Any]] = {  # typed from the paper, row by row
    "model_dim": [512, 512, 512, 512, 768, 768, 768],
    "embedding_dim": [128] * 7,
    "ffn_dim": [2048, 2048, 1024, 2048, 3072, 3072, 3072],
    "heads": [8, 8, 4, 8, 12, 12, 12],
    "encoder_layers": [6] * 7,
    "decoder_layers": [6] * 7,
    "num_timesteps": [2000] * 7,
    "schedule": ["sqrt"] * 7,
    "noise_factor": [3.5, None, 4.0, None, 4.0, 4.0, None],  # of the scripts; none where there is no script
    "max_dgs": [0.15, 0.15, 0.15, 0.15, 0.15, 0.15, 0.20],
    "self_conditioning": [0.5] * 7,
    "optim.steps": [300_000, 300_000, 300_000, 300_000, 50_000, 30_000, 100_000],
    "max_tokens": [65_536, 65_536, 8_192, 65_536, 8_192, 65_536, 65_536],
    "betas": [(0.9, 0.98)] * 7,
    "weight_decay": [0.01] * 7,
    "lr": [5e-4, 5e-4, 5e-4, 5e-4, 5e-4, 5e-4, 3e-4],
    "warmup": [10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 5_000],
    "clip_norm": [1.0] * 7,
    "dropout": [0.1, 0.1, 0.3, 0.1, 0.1, 0.1, 0.1],
    "length_loss_weight": [0.1] * 7,
    "label_smoothing": [0.1] * 7,
    "generation.steps": [20] * 7,
    "generation.stop_early": [5] * 7,
}


@pytest.mark.parametrize("row", TABLE_21)
def test_presets_are_table_21(row: str) -> None:
    assert [get_setting(PRESETS[column], row) for column in COLUMNS] == TABLE_21[row]


def test_there_is_a_preset_for_each_column_and_tiny() -> None:
    assert set(PRESETS) == {*COLUMNS, "tiny", "small"}


def test_the_noise_factor_comes_from_the_vocabulary_and_the_dimension(tokenizer: Tokenizer) -> None:
    small, large = (
        resolve(PRESETS["tiny"].replace(embedding_dim=dim), tokenizer).diffusion.noise_factor
        for dim in (8, 64)
    )
    assert small is not None
    assert large is not None
    assert 1 <= small < large
    assert resolve(PRESETS["tiny"].replace(noise_factor=1.0), tokenizer).diffusion.noise_factor == 1.0


def test_rescaling_is_for_training_only(small: Make) -> None:
    for changes, kind in (({}, Rescaled), ({"variance_preserving": True}, VariancePreserving)):
        model = small(noise_factor=3.0, **changes)
        config = PRESETS["tiny"].replace(changes, noise_factor=3.0)
        assert isinstance(find_recipe("difformer").objective(config, model).schedule, kind)
        assert isinstance(model.schedule, SqrtSchedule)


def test_the_smallest_published_model_has_its_size(tokenizer: Tokenizer) -> None:
    """transformer-iwslt-de-en without its embeddings: 6 · (4W² + 2WF) + 6 · (8W² + 2WF) and a little."""
    with torch.device("meta"):
        model = find_recipe("difformer").build(PRESETS["iwslt14-de-en"], tokenizer)
    layers = 6 * (4 * 512**2 + 2 * 512 * 1024) + 6 * (8 * 512**2 + 2 * 512 * 1024)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert layers < count < 1.15 * layers


def test_weights_start_small_positions_larger_and_embeddings_at_unit_variance(tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    model = find_recipe("difformer").build(PRESETS["tiny"].replace(noise_factor=1.0), tokenizer)
    denoiser, width = model.denoiser, PRESETS["tiny"].model.model_dim
    assert denoiser.input_projection.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert denoiser.position_embedding.weight.std().item() == pytest.approx(width**-0.5, rel=0.1)
    assert denoiser.encoder.position_embedding.weight.std().item() == pytest.approx(width**-0.5, rel=0.1)
    assert denoiser.embedding.vectors.std().item() == pytest.approx(1, rel=0.1)
    assert denoiser.key_value_projection.bias.abs().max() == 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"heads": 3}, "heads"),
        ({"schedule": "square"}, "schedule"),
        ({"rounding_weight": -1.0}, "rounding_weight"),
        ({"vlb_weight": 0.0, "anchor_weight": 0.0}, "vlb_weight and anchor_weight must be above 0"),
        ({"dropout": 1.5}, "dropout"),
        ({"noise_factor": 0.0}, "noise_factor"),
        ({"lr_schedule": "exponential"}, "lr_schedule"),
        ({"optim.steps": 0}, "steps"),
        ({"ema_decay": 1.0}, "ema_decay"),
        ({"tokenizer": "wordpiece"}, "vocabulary_file"),
        ({"length_loss_weight": -1.0}, "length_loss_weight"),
    ],
)
def test_impossible_settings_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(Problem, match=named):
        DifformerConfig().replace(changes)


def test_the_published_network_trains_and_its_texts_have_the_asked_length(
    dates: Path, tmp_path: Path
) -> None:
    """The begin and the end are learned and generated, and no part of the text."""
    changes = SMALL | {"model.network": "released", "optim.steps": 3, "noise_factor": 2.0}
    files: dict[str, Any] = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    train("difformer", out=tmp_path / "run", preset="tiny", changes=changes, device="cpu", **files)
    model = load(tmp_path / "run", device="cpu")
    assert isinstance(model, LengthPredictingModel)
    output = model.generate(["7 april 1957"], steps=3, length=10, noise_beam=2)
    assert output.lengths == [[10, 10]]
    assert model.generate(["7 april 1957"], steps=3, prefix="19").texts[0].startswith("19")
    assert model.likelihood(["7 april 1957"], ["1957-04-07"])[0] < 0
