"""Int8 layers are nearly exact, row by row, and are used only where they were asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from noise2text import load
from noise2text.acceleration.int8 import Int8Linear, has_fast_int8, quantize_linears
from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.folder import save
from noise2text.models.registry import find_recipe

from ..conftest import SMALL, Make

TEXTS = ["sunday, 7 april 1957", "12. mai 2001", "x"]
CPU = torch.device("cpu")


@pytest.mark.parametrize("bias", [True, False])
def test_an_int8_layer_is_exact_up_to_rounding(bias: bool) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(96, 40, bias=bias)
    x = torch.randn(3, 7, 96) * torch.logspace(-3, 3, 7)[:, None]
    with torch.inference_mode():
        exact, rounded = linear(x), Int8Linear(linear)(x)
    shift = 0 if linear.bias is None else linear.bias
    # Half a unit of each factor at every one of the 96 products is the most that rounding can do.
    unit_x, unit_w = x.abs().amax(-1, keepdim=True) / 127, linear.weight.abs().amax(1) / 127
    most = (unit_x / 2) * linear.weight.abs().sum(1) + (unit_w / 2) * x.abs().sum(-1, keepdim=True)
    assert ((exact - rounded).abs() <= most + 96 * unit_x * unit_w / 4 + 1e-5).all()
    assert (rounded - exact).norm() / (exact - shift).norm() < 0.02


def test_integers_up_to_127_are_exact() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(64, 32)
    with torch.no_grad():
        linear.weight.copy_(torch.randint(-127, 128, (32, 64)))
        linear.weight[:, 0] = 127
    x = torch.randint(-127, 128, (5, 64)).float()
    x[:, 1] = -127
    torch.testing.assert_close(Int8Linear(linear)(x), linear(x), rtol=1e-6, atol=1e-2)


def test_a_row_depends_on_no_other_and_zero_stays_zero() -> None:
    torch.manual_seed(0)
    layer = Int8Linear(nn.Linear(64, 32, bias=False))
    x = torch.randn(9, 64)
    x[4] = 0
    together = layer(x)
    x[5] *= 1e6
    assert torch.equal(layer(x)[:5], together[:5])
    assert torch.equal(layer(x[:1]), together[:1])
    assert not together[4].any()


def test_only_large_layers_are_quantized() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.ReLU(), nn.Linear(16, 8)), nn.Embedding(64, 64))
    assert quantize_linears(module, min_weights=100) == 1
    assert [type(each) for each in (module[0], module[1][1])] == [nn.Linear, Int8Linear]  # type: ignore[index]


def test_an_encoder_may_keep_more_of_its_layers_in_float32() -> None:
    module = nn.Module()
    module.encoder, module.decoder = (nn.Sequential(nn.Linear(16, 8), nn.Linear(32, 8)) for _ in range(2))
    assert quantize_linears(module, min_weights=100, min_encoder_weights=200) == 3
    assert [type(each) for each in module.encoder] == [nn.Linear, Int8Linear]
    assert [type(each) for each in module.decoder] == [Int8Linear, Int8Linear]


def test_what_runs_once_is_found_in_a_wrapped_network(small: Make) -> None:
    wrapped = nn.Sequential(small().denoiser)
    quantize_linears(wrapped, min_weights=1, min_encoder_weights=10**9)
    quantized = [name for name, each in wrapped.named_modules() if isinstance(each, Int8Linear)]
    assert quantized
    assert not [name for name in quantized if "encoder" in name or name.endswith("key_value_projection")]


def test_an_int8_model_generates_the_same_texts_in_any_batch(small: Make) -> None:
    model = small().move_to(CPU, "int8")
    kinds = {type(each) for each in model.denoiser.modules()}
    assert Int8Linear in kinds
    assert nn.Linear not in kinds
    options: dict[str, Any] = {"steps": 5, "stop_early": 0}
    together = model.generate(TEXTS, batch=3, **options)
    assert model.generate(TEXTS, batch=1, **options).texts == together.texts
    assert model.generate(TEXTS, batch=2, **options).candidates == together.candidates


def test_int8_estimates_are_near_those_of_float32(small: Make) -> None:
    plain, rounded = small(), small().move_to(CPU, "int8")
    source = plain.layout.make_source(RaggedRows.from_lists(plain.tokenizer.encode(TEXTS)))
    with torch.inference_mode():
        a, b = plain.denoiser.encode(source).keys, rounded.denoiser.encode(source).keys
    assert (a - b).norm() / a.norm() < 0.03


def test_auto_leaves_small_layers_and_other_models_alone(small: Make, tokenizer: Tokenizer) -> None:
    assert not any(isinstance(each, Int8Linear) for each in small().move_to(CPU, "auto").modules())
    large = small(model_dim=256, ffn_dim=256).move_to(CPU, "auto")
    assert any(isinstance(each, Int8Linear) for each in large.denoiser.modules()) == has_fast_int8()
    assert not any(isinstance(each, Int8Linear) for each in large.lengths.modules())


def test_int8_is_refused_for_models_that_do_not_correct_its_errors(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    recipe = find_recipe("copy")
    config = recipe.preset("tiny")
    save(tmp_path, recipe.build(config, tokenizer), recipe="copy", config=config)
    with pytest.raises(Problem, match="int8 is for diffusion models on a CPU"):
        load(tmp_path, device="cpu", precision="int8")
    assert load(tmp_path, device="cpu", precision="auto").generate(["x"]).texts == ["x"]


def test_a_model_folder_can_be_loaded_in_int8(tokenizer: Tokenizer, tmp_path: Path) -> None:
    recipe = find_recipe("difformer")
    config = apply_overrides(recipe.preset("tiny"), SMALL | {"noise_factor": 2.0}, origin="a test")
    save(tmp_path, recipe.build(config, tokenizer), recipe="difformer", config=config)
    model = load(tmp_path, device="cpu", precision="int8")
    assert len(model.generate(TEXTS, steps=2, stop_early=0).texts) == 3
    assert any(isinstance(each, Int8Linear) for each in model.modules())


def test_an_int8_model_stays_on_the_cpu(small: Make) -> None:
    model = small()
    quantize_linears(model, min_weights=1)
    with pytest.raises(Problem, match="quantized to int8 for a CPU: load it again for meta"):
        model.move_to(torch.device("meta"), "auto")
