"""What is packed into one piece comes out of it as it was."""

from __future__ import annotations

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from noise2text.hardware import ALIGNED, packed, send_all, unpacked

TYPES = (torch.bool, torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.float64, torch.complex128)


def filled(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> Tensor:
    """A tensor of small random numbers."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)


kinds = st.tuples(
    st.sampled_from(TYPES), st.lists(st.integers(0, 3), max_size=3).map(tuple), st.integers(0, 9)
)


@given(several=st.lists(kinds, min_size=1, max_size=6))
@example(
    several=[(torch.bool, (3,), 0), (torch.int64, (2, 2), 1), (torch.bool, (), 2), (torch.float32, (0,), 3)]
)
@settings(deadline=None, max_examples=100)
def test_what_was_packed_comes_back_with_its_type_shape_and_values(
    several: list[tuple[torch.dtype, tuple[int, ...], int]],
) -> None:
    tensors = [filled(*each) for each in several]
    piece = packed(tensors)
    assert piece.dtype == torch.uint8
    assert len(piece) < sum(tensor.nbytes + ALIGNED for tensor in tensors)
    for before, after in zip(tensors, unpacked(piece, tensors), strict=True):
        assert after.dtype == before.dtype
        assert after.shape == before.shape
        assert torch.equal(after, before)
        assert after.untyped_storage().data_ptr() == piece.untyped_storage().data_ptr()
        assert after.storage_offset() * after.itemsize % ALIGNED == 0


def test_a_tensor_with_gaps_in_memory_is_packed_too() -> None:
    wide = torch.arange(12).view(3, 4)
    tensors = [wide.T, wide[:, 1], torch.zeros(1, dtype=torch.long).expand(5)]
    for before, after in zip(tensors, unpacked(packed(tensors), tensors), strict=True):
        assert torch.equal(after, before)


def test_on_the_same_device_nothing_is_copied() -> None:
    tensors = [torch.arange(3), torch.ones(2, dtype=torch.bool)]
    sent = send_all(tensors, "cpu")
    assert [each.data_ptr() for each in sent] == [each.data_ptr() for each in tensors]


def test_elsewhere_types_shapes_and_order_stay() -> None:
    """The meta device keeps no values, but it is another device."""
    tensors = [torch.ones(2, dtype=torch.bool), torch.arange(3), torch.ones(1, 2, device="meta")]
    sent = send_all(tensors, "meta")
    assert [(each.device.type, each.dtype, each.shape) for each in sent] == [
        ("meta", each.dtype, each.shape) for each in tensors
    ]
