"""The transformer's layers are torch's own post-norm ones; the clock becomes cosines and sines."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from noise2text.acceleration import fused
from noise2text.nn.attention import padding_mask, split_heads
from noise2text.nn.encoder_decoder import split_keys_and_values
from noise2text.nn.layers import AddNorm, DecoderLayer, EncoderLayer, LayerStack, TimeEmbedding

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
    ours = EncoderLayer(8, 16, 2, dropout=0.0, activation=activation)
    self_attention = oracle.self_attn
    copy(ours.self_attention.qkv_projection, self_attention.in_proj_weight, self_attention.in_proj_bias)
    copy(ours.self_attention.output_projection, self_attention.out_proj.weight, self_attention.out_proj.bias)
    copy_feed_forward(ours.feed_forward, oracle.linear1, oracle.linear2)
    x = torch.randn(2, 5, 8)
    expected = oracle(x, src_key_padding_mask=PADDING)
    assert torch.allclose(ours(x, padding_mask(PADDING, x))[~PADDING], expected[~PADDING], atol=1e-5)


def test_a_decoder_layer_is_torchs_post_norm_one() -> None:
    torch.manual_seed(0)
    oracle = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=False)
    ours = DecoderLayer(8, 16, 2, dropout=0.0)
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
    seen = [
        split_heads(encoded @ weight.T + bias, 2)
        for weight, bias in (
            (keys, cross_attention.in_proj_bias[8:16]),
            (values, cross_attention.in_proj_bias[16:]),
        )
    ]
    everything = torch.ones(1, 1, 1, 4, dtype=torch.bool)
    expected = oracle(x, encoded, memory_key_padding_mask=PADDING)
    assert torch.allclose(ours(x, everything, *seen, padding_mask(PADDING, x)), expected, atol=1e-5)


def test_the_clock_is_a_thousandfold_cosines_first_then_a_network_of_two_layers() -> None:
    torch.manual_seed(0)
    time = TimeEmbedding(6)
    first, second = (module for module in time.mlp if isinstance(module, nn.Linear))
    assert (first.in_features, first.out_features, second.out_features) == (6, 24, 6)
    for timestep in (0.0, 0.25, 0.9995):
        angles = [1000 * timestep * 10_000 ** (-i / 3) for i in range(3)]
        sinusoids = torch.tensor([*map(math.cos, angles), *map(math.sin, angles)])
        expected = second(first(sinusoids).relu())
        assert torch.allclose(time(torch.tensor([[timestep]]))[0, 0], expected, atol=1e-3)


@pytest.mark.parametrize("packed", [1, 2, 4])
def test_rows_that_lie_side_by_side_do_not_see_each_other(packed: int) -> None:
    torch.manual_seed(0)
    layer = DecoderLayer(8, 16, 2, dropout=0.0)
    x, states, keys_and_values = torch.randn(4, 5, 8), torch.randn(4, 3, 8), torch.randn(4, 3, 16)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2] * 2)
    source = torch.tensor([[False, False, True], [False, True, True]] * 2)

    def passed(packed: int) -> Tensor:
        encoded = split_keys_and_values(states, source, keys_and_values, layers=1, heads=2, packed=packed)
        assert encoded.sources_per_row == packed
        masks = [padding_mask(hidden, x, packed=packed, queries=5) for hidden in (padding, source)]
        out: Tensor = layer(x, masks[0], encoded.keys[0], encoded.values[0], masks[1])
        return out

    assert torch.allclose(passed(packed)[~padding], passed(1)[~padding], atol=1e-6)


def test_short_rows_lie_side_by_side_only_in_training_and_only_where_they_come_out_even() -> None:
    stack = LayerStack([DecoderLayer(8, 16, 2, dropout=0.0)])
    padding = torch.zeros(12, 5, dtype=torch.bool)
    assert stack.train().packed(padding) == 1
    stack.pack_tokens = 25
    assert stack.packed(padding) == 4  # five would fit, but twelve rows do not go by five
    assert stack.eval().packed(padding) == 1


def fused_layer() -> EncoderLayer:
    torch.manual_seed(0)
    layer = EncoderLayer(8, 16, 2, dropout=0.0, activation=nn.GELU)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    for part in layer.children():
        part.fused = True  # type: ignore[assignment]
    return layer


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """The layers whose biases what follows had to add, as on a GPU; nothing is compiled."""
    found: list[nn.Module] = []

    def deferred_bias(linear: nn.Module, x: Tensor) -> Tensor | None:
        found.append(linear)
        bias = linear.bias
        return bias if isinstance(bias, Tensor) else None

    monkeypatch.setattr(fused, "deferred_bias", deferred_bias)
    monkeypatch.setattr(fused, "_compile", lambda function: function)
    return found


def test_a_bias_that_is_added_later_is_added_once_and_learns(later: list[nn.Module]) -> None:
    layer, x = fused_layer(), torch.randn(2, 5, 8)
    passed: dict[bool, list[Tensor]] = {}
    for fast in (True, False):
        for part in layer.children():
            part.fused = fast  # type: ignore[assignment]
        layer.zero_grad()
        out = layer(x, None)
        (out * torch.arange(80).view(2, 5, 8)).sum().backward()
        passed[fast] = [out.detach(), *(p.grad.clone() for p in layer.parameters() if p.grad is not None)]
    assert later == [layer.self_attention.output_projection, layer.feed_forward[3], layer.feed_forward[0]]
    assert len(passed[True]) == 1 + len(list(layer.parameters()))
    for mine, theirs in zip(passed[True], passed[False], strict=True):
        assert torch.allclose(mine, theirs, atol=1e-4 * float(theirs.abs().max()))


def test_who_looks_at_a_part_sees_its_bias(later: list[nn.Module]) -> None:
    layer, x, seen = fused_layer(), torch.randn(2, 5, 8), []
    expected = layer(x, None)
    layer.feed_forward.register_forward_hook(lambda module, given, out: seen.append((given[0], out)))
    assert torch.allclose(layer(x, None), expected, atol=1e-5)
    assert later.count(layer.feed_forward[3]) == 1  # before somebody looked
    ((given, out),) = seen
    assert torch.allclose(out, nn.Sequential.forward(layer.feed_forward, given), atol=1e-5)


def test_what_is_too_wide_for_our_kernel_adds_its_own_bias(
    later: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "MAX_NORM_WIDTH", 7)
    monkeypatch.setattr(fused, "_can_fuse_bias", lambda x: True)
    norm = fused_layer().self_attention_norm
    x, y, input_bias = torch.randn(3, 2, 5, 8)
    found = fused.add_norm(
        x, y, norm.weight, norm.bias, eps=norm.eps, dropout_rate=0.0, input_bias=input_bias[0, 0]
    )
    assert torch.allclose(found, nn.LayerNorm.forward(norm, x + y + input_bias[0, 0]), atol=1e-5)
    monkeypatch.setattr(fused, "_can_fuse_bias", lambda x: False)
    layer = fused_layer()
    layer(x, None)
    assert later == [layer.feed_forward[0]]


def test_only_plain_layers_in_training_leave_their_bias_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Adapted(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    x, plain = torch.randn(3, 8), nn.Linear(8, 8)
    assert fused.deferred_bias(plain, x) is None  # on a CPU
    monkeypatch.setattr(fused, "_can_fuse_bias", lambda x: True)
    assert fused.deferred_bias(plain, x) is plain.bias
    for other in (Adapted(8, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 8).eval(), nn.Identity()):
        assert fused.deferred_bias(other, x) is None


@pytest.mark.parametrize("fast", [False, True])
def test_a_norm_adds_the_bias_before_dropout(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_compile", lambda function: function)
    norm, (x, y, input_bias) = AddNorm(8, 0.5), torch.randn(3, 4, 8)
    norm.fused = fast
    with torch.autocast("cpu", torch.bfloat16, enabled=fast):
        torch.manual_seed(1)
        found = norm(x, y, input_bias[0])
        torch.manual_seed(1)
        assert torch.equal(found, norm(x, y + input_bias[0]))
