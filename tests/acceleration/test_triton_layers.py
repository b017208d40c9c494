"""A model that is accelerated for inference is the plain one wherever no GPU generates."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from noise2text.acceleration import triton_layers
from noise2text.acceleration.class_swap import swap_classes
from noise2text.acceleration.triton_layers import (
    InferenceLayerStack,
    InferenceSelfAttention,
    accelerate_for_inference,
)
from noise2text.data.layouts.base import Source
from noise2text.nn.attention import additive_mask, attend
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.layers import (
    AddNorm,
    CrossAttention,
    FeedForward,
    LayerShape,
    LayerStack,
    SelfAttention,
    UnpaddedLayerStack,
)
from noise2text.nn.nonautoregressive_transformer import NonAutoregressiveTransformer

PADDING = torch.tensor([[False] * 5, [False, False, False, True, True]])
PLAIN = (AddNorm, CrossAttention, FeedForward, LayerStack, SelfAttention)


def make() -> NonAutoregressiveTransformer:
    torch.manual_seed(0)
    shape, layers = LayerShape(8, 16, 2, dropout=0.0), {"encoder_layers": 1, "decoder_layers": 2}
    positions = {"source_positions": 5, "target_positions": 5}
    return NonAutoregressiveTransformer(TokenEmbedding(11, 4), shape, **layers, **positions).eval()


@torch.inference_mode()
def output(network: NonAutoregressiveTransformer) -> torch.Tensor:
    torch.manual_seed(1)
    encoded = network.encode(Source(torch.randint(11, (2, 5)), PADDING))
    states: torch.Tensor = network(torch.randint(11, (2, 5)), PADDING, encoded)
    return states


def test_on_a_cpu_nothing_changes_but_the_classes() -> None:
    plain, fast = make(), make()
    accelerate_for_inference(fast)
    assert not any(type(part) in PLAIN for part in fast.modules())
    assert list(fast.state_dict()) == list(plain.state_dict())
    assert torch.equal(output(fast), output(plain))


def test_the_layers_share_masks_of_bytes_where_the_kernel_can_read_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a GPU; heads of 4 channels do not suit the kernel, and bytes become the usual mask again."""
    network = make()
    expected = output(network)
    accelerate_for_inference(network)
    masks: list[torch.dtype] = []
    for part in network.modules():
        if isinstance(part, SelfAttention):
            part.register_forward_pre_hook(lambda module, given: masks.append(given[1].dtype))
    monkeypatch.setattr(triton_layers, "is_half_precision", lambda x: True)
    monkeypatch.setattr(triton_layers, "has_triton", lambda: True)
    monkeypatch.setattr(
        triton_layers, "byte_mask", lambda padding, like: padding.view(torch.uint8)[:, None, None, :]
    )
    assert torch.equal(output(network), expected)
    assert masks == [torch.uint8] * 3


def test_bytes_hide_keys_where_the_kernel_cannot_attend() -> None:
    torch.manual_seed(0)
    queries, keys, values = torch.randn(3, 2, 2, 5, 4)
    hidden = PADDING[:, None, None]
    found = InferenceSelfAttention(8, 2).attend(queries, keys, values, hidden.view(torch.uint8))
    assert torch.equal(found, attend(queries, keys, values, additive_mask(hidden, queries)))


def test_layers_without_padding_need_no_bytes_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_layers, "byte_mask", lambda padding, like: padding)
    stack = UnpaddedLayerStack([nn.Identity()])
    swap_classes(stack, {LayerStack: InferenceLayerStack})
    assert isinstance(stack, InferenceLayerStack)
    assert stack.self_attention_mask(PADDING, torch.zeros(2, 5, 8)) is None
