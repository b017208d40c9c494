"""The transformer's layers are torch's own post-norm ones; timesteps become cosines and sines."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from noise2text.nn.attention import padding_mask, split_heads
from noise2text.nn.layers import DecoderLayer, EncoderLayer, LayerShape, TimeEmbedding

PADDING = torch.tensor([[False] * 5, [False, False, False, True, True]])


def copy(linear: nn.Linear, weight: Tensor, bias: Tensor) -> None:
    with torch.no_grad():
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)


def copy_feed_forward(ours: nn.Sequential, first: nn.Linear, second: nn.Linear) -> None:
    for linear, other in ((ours[0], first), (ours[3], second)):
        assert isinstance(linear, nn.Linear)
        copy(linear, other.weight, other.bias)


@pytest.mark.parametrize(("activation", "name"), [(nn.ReLU, "relu"), (nn.GELU, "gelu")])
def test_an_encoder_layer_is_torchs_post_norm_one(activation: Callable[[], nn.Module], name: str) -> None:
    torch.manual_seed(0)
    oracle = nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation=name, batch_first=True, norm_first=False)
    ours = EncoderLayer(LayerShape(8, 16, 2, dropout=0.0, activation=activation))
    self_attention = oracle.self_attn
    copy(ours.self_attention.qkv_projection, self_attention.in_proj_weight, self_attention.in_proj_bias)
    copy(ours.self_attention.output_projection, self_attention.out_proj.weight, self_attention.out_proj.bias)
    copy_feed_forward(ours.feed_forward, oracle.linear1, oracle.linear2)
    x = torch.randn(2, 5, 8)
    expected = oracle(x, src_key_padding_mask=PADDING)
    assert torch.allclose(ours(x, padding_mask(PADDING, x))[~PADDING], expected[~PADDING], atol=1e-5)


@pytest.mark.parametrize(("activation", "name"), [(nn.ReLU, "relu"), (nn.GELU, "gelu")])
def test_a_decoder_layer_is_torchs_post_norm_one(activation: Callable[[], nn.Module], name: str) -> None:
    torch.manual_seed(0)
    oracle = nn.TransformerDecoderLayer(8, 2, 16, 0.0, activation=name, batch_first=True, norm_first=False)
    ours = DecoderLayer(LayerShape(8, 16, 2, dropout=0.0, activation=activation))
    copy(ours.self_attention.qkv_projection, oracle.self_attn.in_proj_weight, oracle.self_attn.in_proj_bias)
    copy(
        ours.self_attention.output_projection,
        oracle.self_attn.out_proj.weight,
        oracle.self_attn.out_proj.bias,
    )
    cross_attention = oracle.multihead_attn
    queries, keys, values = cross_attention.in_proj_weight.chunk(3)
    copy(ours.cross_attention.query_projection, queries, cross_attention.in_proj_bias[:8])
    copy(
        ours.cross_attention.output_projection, cross_attention.out_proj.weight, cross_attention.out_proj.bias
    )
    copy_feed_forward(ours.feed_forward, oracle.linear1, oracle.linear2)
    x, encoded = torch.randn(2, 4, 8), torch.randn(2, 5, 8)
    keys_and_values = [
        split_heads(encoded @ weight.T + bias, 2)
        for weight, bias in (
            (keys, cross_attention.in_proj_bias[8:16]),
            (values, cross_attention.in_proj_bias[16:]),
        )
    ]
    everything = torch.ones(1, 1, 1, 4, dtype=torch.bool)
    expected = oracle(x, encoded, memory_key_padding_mask=PADDING)
    assert torch.allclose(
        ours(x, everything, *keys_and_values, padding_mask(PADDING, x)), expected, atol=1e-5
    )


def test_a_time_embedding_is_cosines_then_sines_then_two_layers() -> None:
    torch.manual_seed(0)
    time = TimeEmbedding(6)
    first, second = (module for module in time.mlp if isinstance(module, nn.Linear))
    assert (first.in_features, first.out_features, second.out_features) == (6, 24, 6)
    for timestep in (0.0, 0.25, 0.9995):
        angles = [1000 * timestep * 10_000 ** (-i / 3) for i in range(3)]
        sinusoids = torch.tensor([*map(math.cos, angles), *map(math.sin, angles)])
        expected = second(first(sinusoids).relu())
        assert torch.allclose(time(torch.tensor([[timestep]]))[0, 0], expected, atol=1e-3)
