"""Weights stored in eight bits are as near as eight bits allow; storing them again changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from noise2text.acceleration.int8 import Int8Linear
from noise2text.core.errors import Problem
from noise2text.core.weight_storage import WEIGHT_TYPES, compress_weights, expand_weights
from noise2text.core.weights_file import open_weights, read_weights, save_weights


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    """A large matrix with a row of zeros, a small one, a long vector, and a mask."""
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(96, 64, generator=generator) * torch.logspace(-3, 3, 96)[:, None]
    matrix[5] = 0.0
    return {
        "matrix": matrix,
        "small": torch.randn(8, 8, generator=generator),
        "vector": torch.randn(5000, generator=generator),
        "mask": torch.ones(9000, dtype=torch.bool),
    }


def test_a_matrix_in_eight_bits_is_off_by_half_a_step_of_its_row_at_most(
    tensors: dict[str, torch.Tensor],
) -> None:
    stored = compress_weights(tensors, "int8")
    error = (expand_weights(stored)["matrix"] - tensors["matrix"]).abs().amax(1)
    assert (error <= 0.501 * stored["matrix.row_scale"]).all()
    assert stored["matrix"].dtype == torch.int8
    assert stored["matrix"].abs().amax() == 127
    assert torch.equal(expand_weights(stored)["matrix"][5], torch.zeros(64))


def test_eight_bits_stay_the_same_when_they_are_stored_again(tensors: dict[str, torch.Tensor]) -> None:
    once = compress_weights(tensors, "int8")
    twice = compress_weights(expand_weights(once), "int8")
    assert torch.equal(once["matrix"], twice["matrix"])


def test_a_linear_layer_in_int8_computes_with_the_stored_numbers(tensors: dict[str, torch.Tensor]) -> None:
    stored = compress_weights(tensors, "int8")
    linear = nn.Linear(64, 96)
    linear.weight.data = expand_weights(stored)["matrix"]
    assert torch.equal(Int8Linear(linear).weight.T, stored["matrix"])


@pytest.mark.parametrize("dtype", WEIGHT_TYPES)
def test_small_tensors_and_masks_stay_as_they_are(tensors: dict[str, torch.Tensor], dtype: str) -> None:
    expanded = expand_weights(compress_weights(tensors, dtype))
    assert expanded.keys() == tensors.keys()
    for name in ("small", "mask"):
        assert torch.equal(expanded[name], tensors[name])
    assert torch.allclose(expanded["vector"].float(), tensors["vector"], rtol=0.01)


def test_a_file_tells_the_shapes_before_it_is_read_and_has_a_quarter_of_the_size(
    tmp_path: Path, tensors: dict[str, torch.Tensor]
) -> None:
    large = {"matrix": torch.randn(512, 512), **{name: tensors[name] for name in ("small", "mask")}}
    for dtype in ("float32", "int8"):
        save_weights(tmp_path / dtype, compress_weights(large, dtype))
        with open_weights(tmp_path / dtype) as weights:
            assert weights.specs == {
                "matrix": ("F32", (512, 512)),
                "small": ("F32", (8, 8)),
                "mask": ("BOOL", (9000,)),
            }
            assert weights.num_elements == 512 * 512 + 64 + 9000
        assert read_weights(tmp_path / dtype)["matrix"].dtype == torch.float32
    assert (tmp_path / "int8").stat().st_size < 0.27 * (tmp_path / "float32").stat().st_size


@pytest.mark.parametrize(
    "change",
    [
        lambda scale: scale[:7],
        lambda scale: scale[:, None],
        lambda scale: scale.double(),
        lambda scale: scale > 0,
        lambda scale: -scale,
        lambda scale: scale * float("nan"),
        lambda scale: torch.full_like(scale, 3e38),
    ],
    ids=["too few", "a matrix", "another type", "truth values", "negative", "NaN", "too large"],
)
def test_scales_that_do_not_fit_are_refused(
    tmp_path: Path, tensors: dict[str, torch.Tensor], change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    stored = compress_weights(tensors, "int8")
    stored["matrix.row_scale"] = change(stored["matrix.row_scale"])
    save_weights(tmp_path / "weights", stored)
    with pytest.raises(Problem, match=r"scales of matrix do not fit|not finite"):
        read_weights(tmp_path / "weights")


def test_another_type_is_refused(tensors: dict[str, torch.Tensor]) -> None:
    with pytest.raises(Problem, match="float32, bfloat16, int8"):
        compress_weights(tensors, "int4")
