"""Decoder layers that leave padding out compute less, and the same."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from noise2text.acceleration.batch_invariance import make_batch_invariant
from noise2text.acceleration.int8 import Int8Linear, quantize_linears
from noise2text.acceleration.unpadding import MIN_PADDING, leave_out_padding
from noise2text.nn.denoiser import EncoderOutput
from noise2text.nn.layers import DecoderLayer, LayerShape, LayerStack

from ..conftest import Make

WIDTH, HEADS, LAYERS = 32, 4, 2
SENTENCES, CANDIDATES, SOURCE, LENGTH = 8, 5, 9, 24


def make_layers() -> LayerStack:
    torch.manual_seed(0)
    shape = LayerShape(WIDTH, 64, HEADS, dropout=0.1)
    return LayerStack(DecoderLayer(shape) for _ in range(LAYERS)).eval()


def make_batch() -> tuple[Tensor, Tensor, EncoderOutput]:
    """States, their padding, and encoded sources: the candidates of a sentence have different lengths."""
    torch.manual_seed(1)
    lengths = torch.randint(1, LENGTH + 1, (SENTENCES * CANDIDATES, 1))
    keys, values = torch.randn(2, LAYERS, SENTENCES, HEADS, SOURCE, WIDTH // HEADS)
    source_padding = torch.arange(SOURCE) >= torch.randint(1, SOURCE + 1, (SENTENCES, 1))
    encoded = EncoderOutput(torch.randn(SENTENCES, SOURCE, WIDTH), source_padding, keys, values)
    return torch.randn(len(lengths), LENGTH, WIDTH), torch.arange(LENGTH) >= lengths, encoded


@pytest.mark.parametrize("is_int8", [False, True])
def test_leaving_out_padding_changes_no_bit_of_the_other_positions(is_int8: bool) -> None:
    plain, (x, padding, encoded) = make_layers(), make_batch()
    if is_int8:
        quantize_linears(plain, min_weights=1)
    make_batch_invariant(plain)
    unpadding = copy.deepcopy(plain)
    leave_out_padding(unpadding)
    with torch.inference_mode():
        expected, found = plain.decode(x, padding, encoded), unpadding.decode(x, padding, encoded)
    assert torch.equal(found[~padding], expected[~padding])
    assert not found[padding].any()


def count_positions(layers: LayerStack, x: Tensor, padding: Tensor, encoded: EncoderOutput) -> set[int]:
    """The numbers of positions that the feed-forward networks of the layers compute."""
    counts: set[int] = set()
    hooks = [
        layer.feed_forward.register_forward_hook(
            lambda module, inputs, output: counts.add(output.numel() // WIDTH)
        )
        for layer in layers
        if isinstance(layer, DecoderLayer)
    ]
    layers.decode(x, padding, encoded)
    for hook in hooks:
        hook.remove()
    return counts


def test_padding_is_computed_only_where_there_is_little_of_it_and_for_gradients() -> None:
    layers, (x, padding, encoded) = make_layers(), make_batch()
    leave_out_padding(layers)
    positions = padding.numel()
    assert count_positions(layers, x, padding, encoded) == {positions}  # gradients are wanted
    with torch.inference_mode():
        assert count_positions(layers, x, padding, encoded) == {positions - int(padding.sum())}
        little = torch.zeros_like(padding)
        little.view(-1)[: MIN_PADDING - 1] = True
        assert count_positions(layers, x, little, encoded) == {positions}


def test_int8_models_leave_out_padding(small: Make) -> None:
    model = small().move_to(torch.device("cpu"), "int8")
    assert any(isinstance(module, Int8Linear) for module in model.modules())
    stacks = [module for module in model.modules() if isinstance(module, LayerStack)]
    assert {type(stack).__name__ for stack in stacks} == {"UnpaddingLayerStack"}
