"""Short rows that are packed side by side in training attend as rows apart do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from noise2text.acceleration.packing import PackedLayerStack, pack_layers, pack_short_rows
from noise2text.data.layouts.base import Source
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.encoder_decoder import Encoder
from noise2text.nn.joint_transformer import JointTransformer
from noise2text.nn.layers import DecoderLayer, LayerShape, LayerStack, UnpaddedLayerStack

PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2] * 2)
SHAPE = LayerShape(8, 16, 2, dropout=0.0)


class Decoder(torch.nn.Module):
    """A decoder layer over sources whose keys and values are given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = LayerStack([DecoderLayer(SHAPE)])

    def forward(self, x: Tensor, source_padding: Tensor, keys_and_values: Tensor) -> Tensor:
        encoded = self.layers.encoder_output(keys_and_values, source_padding, keys_and_values, heads=2)
        masks = self.layers.self_attention_mask(PADDING, x), self.layers.source_mask(encoded, x)
        out: Tensor = self.layers[0](x, masks[0], encoded.keys[0], encoded.values[0], masks[1])
        return out


@pytest.mark.parametrize("packed", [1, 2, 4])
def test_packed_rows_do_not_see_each_other(packed: int) -> None:
    plain, fast = Decoder(), Decoder()
    pack_layers(fast.layers, tokens=5 * packed)
    assert isinstance(fast.layers, PackedLayerStack)
    x, keys_and_values = torch.randn(4, 5, 8), torch.randn(4, 3, 16)
    source = torch.tensor([[False, False, True], [False, True, True]] * 2)
    assert fast.layers.rows_per_pack(4, 5) == packed
    found, expected = (each(x, source, keys_and_values) for each in (fast, plain))
    assert torch.allclose(found[~PADDING], expected[~PADDING], atol=1e-6)


def test_rows_are_packed_only_in_training_and_only_as_many_as_divide_their_number() -> None:
    stack = PackedLayerStack([DecoderLayer(SHAPE)])
    stack.pack_tokens = 4
    assert stack.train().rows_per_pack(12, 5) == 1
    stack.pack_tokens = 25
    assert stack.rows_per_pack(12, 5) == 4  # five would fit, but do not divide twelve
    assert stack.eval().rows_per_pack(12, 5) == 1


def test_packed_rows_without_padding_still_need_a_mask() -> None:
    network = JointTransformer(
        TokenEmbedding(11, 4), SHAPE, layers=2, positions=9, layer_stack=UnpaddedLayerStack
    ).train()
    x, padding = torch.randn(2, 6, 8), torch.zeros(2, 6, dtype=torch.bool)
    assert network.layers.self_attention_mask(padding, x) is None
    pack_short_rows(network, tokens=4 * 6)
    mask = network.layers.self_attention_mask(padding, x)
    assert mask is not None
    assert torch.isinf(mask).any()


def test_an_encoder_packs_its_rows_and_keeps_its_weights() -> None:
    torch.manual_seed(0)
    encoder = Encoder(TokenEmbedding(11, 4), SHAPE, layers=2, positions=9)
    source = Source(torch.randint(11, (4, 5)), PADDING)
    names, expected = list(encoder.state_dict()), encoder(source)
    pack_short_rows(encoder)
    assert list(encoder.state_dict()) == names
    mask = encoder.layers.self_attention_mask(PADDING, expected)
    assert mask is not None
    assert mask.shape == (1, 1, 20, 20)
    assert torch.allclose(encoder(source)[~PADDING], expected[~PADDING], atol=1e-6)
