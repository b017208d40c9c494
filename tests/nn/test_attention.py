"""What is hidden from attention stays hidden, however that is said."""

from __future__ import annotations

import torch

from noise2text.nn.attention import additive_mask, attend, causal_mask, padding_mask, split_heads

PADDING = torch.tensor([[False] * 5, [False, False, False, True, True]])


def test_a_mask_hides_what_booleans_hide() -> None:
    torch.manual_seed(0)
    queries, keys, values = torch.randn(3, 2, 2, 5, 4)
    masked = attend(queries, keys, values, padding_mask(PADDING, queries))
    assert torch.equal(masked, attend(queries, keys, values, ~PADDING[:, None, None]))


def test_a_causal_mask_hides_what_comes_later() -> None:
    mask = causal_mask(3, torch.zeros(1))
    assert torch.equal(torch.isneginf(mask), torch.ones(3, 3, dtype=torch.bool).triu(1))


def test_hidden_keys_change_nothing() -> None:
    torch.manual_seed(0)
    queries, keys, values = (split_heads(torch.randn(2, 5, 12), 2) for _ in range(3))
    mask = padding_mask(PADDING, queries)
    before = attend(queries, keys, values, mask)
    for tensor in (keys, values):
        tensor[1, :, 3:] = 100.0
    assert torch.equal(attend(queries, keys, values, mask), before)
    assert before.shape == (2, 5, 12)


def test_a_mask_has_the_dtype_in_which_attention_computes() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        mask = additive_mask(PADDING, torch.zeros(1, dtype=dtype))
        assert mask.dtype == dtype
        assert torch.equal(mask == 0, ~PADDING)
        assert torch.isneginf(mask[PADDING]).all()
