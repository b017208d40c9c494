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
    for name, theirs in difformer.PRESETS.items():
        if name != "tiny":
            for setting in SHARED + TRAINED:
                assert get_setting(PRESETS[name], setting) == get_setting(theirs, setting), (name, setting)


def test_the_thesiss_model_is_its_section_4_1_3() -> None:
    config = PRESETS["covost"]
    shape = config.model
    assert (shape.encoder_layers, shape.decoder_layers) == (6, 6)
    assert (shape.model_dim, shape.ffn_dim, shape.heads) == (512, 1024, 4)
    assert (config.generation.beam, config.generation.length_penalty) == (10, 1.0)
    assert config.data.vocabulary == 30_000


def test_source_target_and_output_share_their_embeddings(tokenizer: Tokenizer) -> None:
    recipe = find_recipe("transformer")
    with torch.device("meta"):
        model = recipe.build(PRESETS["iwslt14-de-en"], tokenizer)
    tables = [name for name, value in model.named_parameters() if value.shape[0] == len(tokenizer)]
    assert tables == ["network.embedding.weight"]
