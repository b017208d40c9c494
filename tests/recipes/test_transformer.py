"""The Transformer's presets are the papers', and all of its embeddings are one table."""

from __future__ import annotations

import torch

from noise2text.core.config import get_setting
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.registry import find_recipe
from noise2text.recipes import difformer
from noise2text.recipes.transformer import PRESETS

SHARED = ("model_dim", "ffn_dim", "heads", "encoder_layers", "decoder_layers", "dropout", "label_smoothing")
TRAINED = ("optim.steps", "max_tokens", "lr", "warmup", "betas", "weight_decay", "clip_norm", "vocabulary")


def test_the_shapes_and_the_training_are_those_of_difformers_table_21() -> None:
    published = {name: each for name, each in difformer.PRESETS.items() if name not in ("tiny", "small")}
    assert {"iwslt14-de-en", "wmt14-en-de", "wmt16-en-ro", "gigaword"} <= published.keys()
    for name, theirs in published.items():
        for setting in SHARED + TRAINED:
            assert get_setting(PRESETS[name], setting) == get_setting(theirs, setting), (name, setting)


def test_the_thesiss_model_is_its_section_4_1_3() -> None:
    config = PRESETS["covost-de-en"]
    shape = config.model
    assert (shape.encoder_layers, shape.decoder_layers) == (6, 6)
    assert (shape.model_dim, shape.ffn_dim, shape.heads) == (512, 1024, 4)
    assert (config.generation.beam, config.generation.length_penalty) == (10, 1.0)
    assert (config.data.vocabulary, config.data.normalize) == (30_000, True)


def test_what_section_4_1_3_leaves_open_is_vaswanis_base_model() -> None:
    config = PRESETS["covost-de-en"]
    assert (config.model.dropout, config.optim.label_smoothing) == (0.1, 0.1)
    assert (config.optim.betas, config.optim.weight_decay, config.optim.clip_norm) == ((0.9, 0.98), 0.0, 0.0)
    assert (config.optim.steps, config.optim.warmup, config.optim.max_tokens) == (100_000, 4_000, 25_000)
    assert config.optim.lr == 512**-0.5 * 4_000**-0.5  # the peak of the paper's formula
    assert config.optim.lr_schedule == "inverse-sqrt"


def test_source_target_and_output_share_their_embeddings(tokenizer: Tokenizer) -> None:
    recipe = find_recipe("transformer")
    with torch.device("meta"):
        model = recipe.build(PRESETS["iwslt14-de-en"], tokenizer)
    tables = [name for name, value in model.named_parameters() if value.shape[0] == len(tokenizer)]
    assert tables == ["network.embedding.weight"]
