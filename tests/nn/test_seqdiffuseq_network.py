"""SeqDiffuSeq's network is BART's between tanh projections: transformers' BART with its weights agrees."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, silu

from noise2text.core.errors import Problem
from noise2text.data.layouts.base import Source
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.registry import find_recipe
from noise2text.nn.denoiser import Constraint, NoiseLevel
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.encoder_decoder import EncoderDecoder
from noise2text.nn.layers import LayerShape
from noise2text.nn.seqdiffuseq_network import SeqDiffuSeqEncoderDecoder

from ..conftest import shrunk

WIDTH, HEADS, LAYERS, DIM, LENGTH = 16, 2, 2, 6, 5
SOURCE = Source(
    torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]]), torch.tensor([[False] * 4, [False, False, True, True]])
)


def network() -> SeqDiffuSeqEncoderDecoder:
    torch.manual_seed(0)
    made = SeqDiffuSeqEncoderDecoder(
        TokenEmbedding(12, DIM, scale=1.0, bias=True),
        LayerShape(WIDTH, 24, HEADS, dropout=0.1),
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        source_positions=8,
        target_positions=LENGTH,
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))  # so that no bias is 0 and no norm is 1
    return made.eval()


def bart(ours: SeqDiffuSeqEncoderDecoder) -> Any:
    """transformers' BART with the weights of our layers, positions and norms."""
    transformers = pytest.importorskip("transformers")
    config = transformers.BartConfig(
        vocab_size=12,
        d_model=WIDTH,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=8,
    )
    assert config.activation_function == "gelu"
    model = transformers.BartModel(config).eval()
    with torch.no_grad():
        for theirs, own in ((model.encoder, ours.encoder), (model.decoder, ours)):
            positions = own.position_embedding.weight
            theirs.embed_positions.weight[2 : 2 + len(positions)] = positions
            for layer, copied in zip(theirs.layers, own.layers, strict=True):
                copy_layer(layer, copied)
        copy_norm(model.encoder.layernorm_embedding, ours.encoder.norm)
        copy_norm(model.decoder.layernorm_embedding, ours.position_norm)
        keys, values = ours.key_value_projection.weight.chunk(2), ours.key_value_projection.bias.chunk(2)
        for number, layer in enumerate(model.decoder.layers):
            rows = slice(number * WIDTH, (number + 1) * WIDTH)
            for theirs, weight, bias in (
                (layer.encoder_attn.k_proj, keys[0], values[0]),
                (layer.encoder_attn.v_proj, keys[1], values[1]),
            ):
                theirs.weight.copy_(weight[rows])
                theirs.bias.copy_(bias[rows])
    return model


def copy_norm(theirs: nn.Module, own: Any) -> None:
    theirs.load_state_dict({"weight": own.weight, "bias": own.bias})


def copy_layer(theirs: Any, own: Any) -> None:
    attention = own.self_attention
    weights, biases = attention.qkv_projection.weight.chunk(3), attention.qkv_projection.bias.chunk(3)
    for name, weight, bias in zip("qkv", weights, biases, strict=True):
        getattr(theirs.self_attn, f"{name}_proj").load_state_dict({"weight": weight, "bias": bias})
    theirs.self_attn.out_proj.load_state_dict(attention.output_projection.state_dict())
    copy_norm(theirs.self_attn_layer_norm, own.self_attention_norm)
    theirs.fc1.load_state_dict(own.feed_forward[0].state_dict())
    theirs.fc2.load_state_dict(own.feed_forward[-1].state_dict())
    copy_norm(theirs.final_layer_norm, own.feed_forward_norm)
    if hasattr(own, "cross_attention"):
        theirs.encoder_attn.q_proj.load_state_dict(own.cross_attention.query_projection.state_dict())
        theirs.encoder_attn.out_proj.load_state_dict(own.cross_attention.output_projection.state_dict())
        copy_norm(theirs.encoder_attn_layer_norm, own.cross_attention_norm)


def tanh_projection(x: Tensor, weights: nn.Module) -> Tensor:
    first, last = (weights.get_submodule(name) for name in ("0", "2"))
    projected: Tensor = last(torch.tanh(first(x)))
    return projected


@torch.no_grad()
def test_the_network_is_bart_between_tanh_projections() -> None:
    ours = network()
    theirs = bart(ours)
    z, guess = torch.randn(2, 2, LENGTH, DIM)
    level = NoiseLevel(torch.ones(2, 1, 1), torch.ones(2, 1, 1), torch.tensor([[0.4], [0.7]]))
    nowhere = torch.zeros(2, LENGTH, dtype=torch.bool)
    encoded = ours.encode(SOURCE)
    estimate = ours(z, level, encoded, Constraint(z, nowhere, nowhere), guess)

    angles = 1000 * level.timestep[..., None] * ours.time_embedding.frequencies
    mlp = ours.time_embedding.mlp
    time = mlp[-1](silu(mlp[0](torch.cat([angles.cos(), angles.sin()], -1))))
    projected = tanh_projection(torch.cat([z, guess], -1), ours.input_projection) + time
    output = theirs(
        inputs_embeds=tanh_projection(ours.embedding.embed(SOURCE.tokens), ours.encoder.input_projection),
        attention_mask=(~SOURCE.padding).long(),
        decoder_inputs_embeds=layer_norm(projected, (WIDTH,), ours.norm.weight, ours.norm.bias),
        decoder_attention_mask=torch.ones(2, LENGTH, LENGTH)[:, None].bool(),  # BART's own would be causal
    )
    visible = ~SOURCE.padding
    torch.testing.assert_close(
        encoded.states[visible], output.encoder_last_hidden_state[visible], rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(estimate.hidden, output.last_hidden_state, rtol=1e-4, atol=1e-4)
    expected = tanh_projection(output.last_hidden_state, ours.output_projection)
    torch.testing.assert_close(estimate.z0, expected, rtol=1e-4, atol=1e-4)


def test_the_setting_chooses_the_network_and_a_teacher_needs_difformers(tokenizer: Tokenizer) -> None:
    recipe = find_recipe("seqdiffuseq")
    config = recipe.preset("tiny")
    own = recipe.build(shrunk(config), tokenizer).denoiser
    other = recipe.build(shrunk(config, network="difformer"), tokenizer).denoiser
    assert isinstance(own, SeqDiffuSeqEncoderDecoder)
    assert type(other) is EncoderDecoder
    assert {type(module) for module in own.modules()} >= {nn.GELU, nn.Tanh, nn.SiLU}
    assert nn.ReLU not in {type(module) for module in own.modules()}
    with pytest.raises(Problem, match="network"):
        shrunk(config, network="bert")
    with pytest.raises(Problem, match="set network to difformer"):
        shrunk(config, from_folder="teacher")
