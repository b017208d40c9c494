"""Small things that many tests need."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # no test asks the hub

from noise2text.core.config import apply_overrides, get_setting, has_setting
from noise2text.data.dates import write_dates
from noise2text.data.tokenizer import Tokenizer, learn_characters
from noise2text.models import LengthPredictingModel, Model
from noise2text.models.folder import save
from noise2text.models.registry import find_recipe, list_recipes
from noise2text.nn.joint_transformer import JointTransformer
from noise2text.nn.seqdiffuseq_network import SeqDiffuSeqEncoderDecoder

torch.set_num_threads(1)

Make = Callable[..., LengthPredictingModel]
"""Builds a small untrained Difformer; arguments change its config."""

SMALL: dict[str, Any] = {
    "tokenizer": "characters",
    "model_dim": 32,
    "ffn_dim": 64,
    "heads": 2,
    "embedding_dim": 8,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "max_source": 48,
    "max_target": 16,
    "max_tokens": 512,
    "warmup": 2,
    "log_every": 2,
    "validation_sentences": 6,
}

NO_DIFFUSION = {
    "cmlm": "predicts masked tokens",
    "copy": "has no network",
    "gpvae": "writes from left to right",
    "gru": "writes from left to right",
    "levenshtein": "edits drafts",
    "nearest": "has no network",
    "pretrained-causal": "writes from left to right",
    "pretrained-seq2seq": "writes from left to right",
    "transformer": "writes from left to right",
}
"""The recipes to which the laws of diffusion do not apply, with the reason."""
DIFFUSION = [name for name in list_recipes() if name not in NO_DIFFUSION]


@pytest.fixture(scope="session")
def dates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small corpus of dates."""
    folder = tmp_path_factory.mktemp("dates")
    write_dates(folder, pairs=200, seed=0)
    return folder


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """One token per character that dates are written with."""
    return learn_characters(["abcdefghijklmnopqrstuvwxyz áéíóúäöüûç,.-0123456789"])


@pytest.fixture
def small(tokenizer: Tokenizer) -> Make:
    """A function that builds a small untrained Difformer; arguments change its config."""

    def make(**changes: Any) -> LengthPredictingModel:
        recipe = find_recipe("difformer")
        torch.manual_seed(0)
        config = apply_overrides(
            recipe.preset("tiny"), SMALL | {"noise_factor": 2.0} | changes, origin="small"
        )
        model: LengthPredictingModel = recipe.build(config, tokenizer)
        return model.eval()

    return make


def save_noisy_model(folder: Path, tokenizer: Tokenizer) -> Path:
    """The folder, with a small untrained Difformer whose weights let the noise decide about the texts."""
    recipe = find_recipe("difformer")
    changes = SMALL | {"noise_factor": 2.0, "generation.steps": 6, "stop_early": 0, "length": 10}
    config = apply_overrides(recipe.preset("tiny"), changes, origin="noisy")
    torch.manual_seed(0)
    save(folder, let_noise_decide(recipe.build(config, tokenizer)), recipe="difformer", config=config)
    return folder


def let_noise_decide(model: LengthPredictingModel) -> LengthPredictingModel:
    """The untrained Difformer, with weights that let the noise decide about its texts."""
    with torch.no_grad():
        for name, weight in model.denoiser.named_parameters():
            if name.startswith(("combine", "input_projection", "position_embedding")):
                weight.mul_(0.1 if name.startswith("position") else 10)
    return model


def small_changes(recipe: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Those changes of SMALL that a recipe has, with further changes."""
    config = find_recipe(recipe).preset("tiny")
    return {name: value for name, value in SMALL.items() if has_setting(config, name)} | changes


def shrunk(config: Any, **changes: Any) -> Any:
    """A recipe's config made small, then changed; a noise factor that would have to be found first is 2."""
    wanted = {name: value for name, value in SMALL.items() if has_setting(config, name)}
    if has_setting(config, "noise_factor") and get_setting(config, "noise_factor") is None:
        wanted["noise_factor"] = 2.0
    return apply_overrides(config, wanted | changes, origin="shrunk")


def lively(model: Model) -> Model:
    """The untrained model; tanh projections get larger weights, so that its texts depend on the noise."""
    if isinstance(getattr(model, "denoiser", None), JointTransformer | SeqDiffuSeqEncoderDecoder):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.startswith(("denoiser.input_projection", "denoiser.output_projection")):
                    parameter.mul_(20 if parameter.ndim == 2 else 1)
    return model.eval()
