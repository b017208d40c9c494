"""The transformer's layers are torch's own post-norm ones; the clock becomes cosines and sines."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from noise2text.networks.encoder_decoder import remember
from noise2text.networks.layers import (
    DecoderLayer,
    EncoderLayer,
    Stack,
    TimeEmbedding,
    attend,
    split_heads,
    visible,
)

PADDING = torch.tensor([[False] * 5, [False, False, False, True, True]])


def copy(linear: nn.Linear, weight: Tensor, bias: Tensor) -> None:
    with torch.no_grad():
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)


def copy_feed(ours: nn.Sequential, first: nn.Linear, second: nn.Linear) -> None:
    for linear, other in ((ours[0], first), (ours[3], second)):
        assert isinstance(linear, nn.Linear)
        copy(linear, other.weight, other.bias)


@pytest.mark.parametrize(("activation", "name"), [(nn.ReLU, "relu"), (nn.GELU, "gelu")])
def test_an_encoder_layer_is_torchs_post_norm_one(activation: Callable[[], nn.Module], name: str) -> None:
    torch.manual_seed(0)
    oracle = nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation=name, batch_first=True, norm_first=False)
    ours = EncoderLayer(8, 16, 2, dropout=0.0, activation=activation)
    attention = oracle.self_attn
    copy(ours.attention.project, attention.in_proj_weight, attention.in_proj_bias)
    copy(ours.attention.merge, attention.out_proj.weight, attention.out_proj.bias)
    copy_feed(ours.feed, oracle.linear1, oracle.linear2)
    x = torch.randn(2, 5, 8)
    expected = oracle(x, src_key_padding_mask=PADDING)
    assert torch.allclose(ours(x, visible(PADDING, x))[~PADDING], expected[~PADDING], atol=1e-5)


def test_a_decoder_layer_is_torchs_post_norm_one() -> None:
    torch.manual_seed(0)
    oracle = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=False)
    ours = DecoderLayer(8, 16, 2, dropout=0.0)
    copy(ours.attention.project, oracle.self_attn.in_proj_weight, oracle.self_attn.in_proj_bias)
    copy(ours.attention.merge, oracle.self_attn.out_proj.weight, oracle.self_attn.out_proj.bias)
    cross = oracle.multihead_attn
    queries, keys, values = cross.in_proj_weight.chunk(3)
    copy(ours.cross.project, queries, cross.in_proj_bias[:8])
    copy(ours.cross.merge, cross.out_proj.weight, cross.out_proj.bias)
    copy_feed(ours.feed, oracle.linear1, oracle.linear2)
    x, memory = torch.randn(2, 4, 8), torch.randn(2, 5, 8)
    seen = [
        split_heads(memory @ weight.T + bias, 2)
        for weight, bias in ((keys, cross.in_proj_bias[8:16]), (values, cross.in_proj_bias[16:]))
    ]
    everything = torch.ones(1, 1, 1, 4, dtype=torch.bool)
    expected = oracle(x, memory, memory_key_padding_mask=PADDING)
    assert torch.allclose(ours(x, everything, *seen, visible(PADDING, x)), expected, atol=1e-5)


def test_bytes_hide_keys_where_our_kernel_cannot_attend() -> None:
    torch.manual_seed(0)
    queries, keys, values = torch.randn(3, 2, 2, 5, 4)
    hidden = PADDING[:, None, None]
    plain = attend(queries, keys, values, visible(PADDING, queries))
    assert torch.equal(attend(queries, keys, values, hidden.view(torch.uint8)), plain)
    assert torch.equal(attend(queries, keys, values, ~hidden), plain)


def test_the_clock_is_a_thousandfold_cosines_first_then_a_network_of_two_layers() -> None:
    torch.manual_seed(0)
    time = TimeEmbedding(6)
    first, second = (module for module in time.network if isinstance(module, nn.Linear))
    assert (first.in_features, first.out_features, second.out_features) == (6, 24, 6)
    for clock in (0.0, 0.25, 0.9995):
        angles = [1000 * clock * 10_000 ** (-i / 3) for i in range(3)]
        waves = torch.tensor([*map(math.cos, angles), *map(math.sin, angles)])
        expected = second(first(waves).relu())
        assert torch.allclose(time(torch.tensor([[clock]]))[0, 0], expected, atol=1e-3)


@pytest.mark.parametrize("together", [1, 2, 4])
def test_rows_that_lie_side_by_side_do_not_see_each_other(together: int) -> None:
    torch.manual_seed(0)
    layer = DecoderLayer(8, 16, 2, dropout=0.0)
    x, states, both = torch.randn(4, 5, 8), torch.randn(4, 3, 8), torch.randn(4, 3, 16)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2] * 2)
    source = torch.tensor([[False, False, True], [False, True, True]] * 2)

    def passed(together: int) -> Tensor:
        memory = remember(states, source, both, layers=1, heads=2, together=together)
        assert memory.together == together
        masks = [visible(hidden, x, together=together, queries=5) for hidden in (padding, source)]
        out: Tensor = layer(x, masks[0], memory.keys[0], memory.values[0], masks[1])
        return out

    assert torch.allclose(passed(together)[~padding], passed(1)[~padding], atol=1e-6)


def test_short_rows_lie_side_by_side_only_in_training_and_only_where_they_come_out_even() -> None:
    stack = Stack([DecoderLayer(8, 16, 2, dropout=0.0)])
    padding = torch.zeros(12, 5, dtype=torch.bool)
    assert stack.train().together(padding) == 1
    stack.tile = 25
    assert stack.together(padding) == 4  # five would fit, but twelve rows do not go by five
    assert stack.eval().together(padding) == 1
