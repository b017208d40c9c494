"""On a CPU, a row gets the same bits alone and among other rows, so that int8 rounds it the same way."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from noise2text.acceleration.batch_invariance import attend_in_blocks, make_batch_invariant
from noise2text.data.ragged import RaggedRows
from noise2text.nn.attention import attend
from noise2text.nn.layers import SelfAttention

from ..conftest import Make

CPU = torch.device("cpu")


def padded(x: Tensor, *, rows: int, length: int) -> Tensor:
    """x (1, heads, L, D) as the last of several rows, and followed by noise up to the length."""
    among = torch.randn(rows, x.shape[1], length, x.shape[3])
    among[-1, :, : x.shape[2]] = x[0]
    return among


@pytest.mark.parametrize("queries", [1, 2, 5, 33, 98])
@pytest.mark.parametrize("keys", [1, 9, 16, 39])
def test_attention_gives_the_same_bits_beside_longer_texts(queries: int, keys: int) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 5, length, 64) for length in (queries, keys, keys))
    alone = attend_in_blocks(q, k, v, torch.zeros(1, 1, 1, keys))
    for rows, longer in ((1, 0), (3, 7), (8, 30)):
        mask = torch.zeros(rows, 1, 1, keys + longer)
        mask[-1, ..., keys:] = -torch.inf
        k_long, v_long = (padded(x, rows=rows, length=keys + longer) for x in (k, v))
        together = attend_in_blocks(padded(q, rows=rows, length=queries + 3 * longer), k_long, v_long, mask)
        assert torch.equal(together[-1, :queries], alone[0])


@pytest.mark.parametrize("mask", [None, torch.randn(5, 9), torch.zeros(2, 1, 1, 9)])
def test_attention_in_blocks_is_attention(mask: Tensor | None) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 9, 8), torch.randn(2, 3, 9, 8)
    torch.testing.assert_close(attend_in_blocks(q, k, v, mask), attend(q, k, v, mask))


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_gives_the_same_bits_for_one_row_and_for_many(bias: bool) -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(128, 320, bias=bias), torch.randn(40, 6, 128)
    expected = linear(x)
    make_batch_invariant(linear)
    together = linear(x)
    torch.testing.assert_close(together, expected)
    for rows in (1, 2, 3, 4, 5, 9, 15, 17):
        assert torch.equal(linear(x[:rows, 0]), together[:rows, 0])
        assert torch.equal(linear(x[:, :3])[:rows], together[:rows, :3])  # not contiguous
        assert linear(x[:0]).shape == (0, 6, 320)


def test_an_int8_network_gives_a_source_the_same_bits_in_every_batch(small: Make) -> None:
    model = small(model_dim=320, heads=5).move_to(CPU, "int8")
    texts = ["1", "7 april", "12. mai 2001", "sunday, 7 april 1957 and monday, 8 april 1957"]
    rows = model.tokenizer.encode(texts)
    with torch.inference_mode():
        together = model.denoiser.encode(model.layout.make_source(RaggedRows.from_lists(rows)))
        for number, row in enumerate(rows):
            alone = model.denoiser.encode(model.layout.make_source(RaggedRows.from_lists([row])))
            assert torch.equal(alone.states[0, : len(row)], together.states[number, : len(row)])


def test_only_int8_models_get_it(small: Make) -> None:
    def kinds(precision: str) -> set[type]:
        return {type(each) for each in small().move_to(CPU, precision).modules()}

    assert SelfAttention in kinds("float32")
    assert SelfAttention not in kinds("int8")
