"""The joint transformer: every position sees every other, and nothing but padding is hidden."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from noise2text.core.random import gaussian_noise, make_key
from noise2text.data.layouts.base import Source
from noise2text.nn.denoiser import Constraint, NoiseLevel
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.joint_transformer import JointTransformer
from noise2text.nn.layers import LayerShape, LayerStack, UnpaddedLayerStack

LENGTH, DIM = 7, 6


SHAPE = LayerShape(32, 64, 2, dropout=0.0)


def make(shape: LayerShape = SHAPE, **changes: Any) -> JointTransformer:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"layers": 2, "positions": LENGTH} | changes
    embedding = TokenEmbedding(20, DIM, scale=1.0, bias=True)
    return JointTransformer(embedding, shape, **sizes).eval()


def level(rows: int, timestep: float = 0.4) -> NoiseLevel:
    return NoiseLevel(torch.ones(rows, 1, 1), torch.ones(rows, 1, 1), torch.full((rows, 1), timestep))


def constraint(rows: int, *, given: int = 0, padding: int = 0) -> Constraint:
    position_indices = torch.arange(LENGTH).expand(rows, -1)
    return Constraint(
        torch.ones(rows, LENGTH, DIM), position_indices < given, position_indices >= LENGTH - padding
    )


def estimate(
    network: JointTransformer, z: torch.Tensor, constraint: Constraint, timestep: float = 0.4
) -> torch.Tensor:
    rows = len(z)
    source = Source(torch.zeros(rows, 2, dtype=torch.long), torch.zeros(rows, 2, dtype=torch.bool))
    with torch.no_grad():
        output = network(z, level(rows, timestep), network.encode(source), constraint, None)
    assert output.z0.shape == z.shape
    return output.z0


def noise(rows: int) -> torch.Tensor:
    return gaussian_noise(make_key(0, torch.arange(rows)), 0, LENGTH, DIM)


def test_every_position_sees_every_other() -> None:
    network, z = make(), noise(1)
    before = estimate(network, z, constraint(1))
    for place in range(LENGTH):
        changed = z.clone()
        changed[0, place] += 1
        difference = (estimate(network, changed, constraint(1)) - before).abs().sum(-1)[0]
        assert (difference > 0).all()


def test_what_is_marked_as_padding_is_hidden() -> None:
    network, z = make(), noise(1)
    changed = z.clone()
    changed[0, -2:] += 1
    before, after = (estimate(network, each, constraint(1, padding=2))[0, :-2] for each in (z, changed))
    assert torch.allclose(before, after, atol=1e-6)


def test_a_full_canvas_needs_no_mask_and_has_the_same_gradients() -> None:
    def outputs_and_gradients(full: bool) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        layer_stack = UnpaddedLayerStack if full else LayerStack
        network, z = make(layer_stack=layer_stack).train(), noise(2)
        assert (network.layers.self_attention_mask(constraint(2).padding, z) is None) == full
        source = Source(torch.zeros(2, 2, dtype=torch.long), torch.zeros(2, 2, dtype=torch.bool))
        output = network(z, level(2), network.encode(source), constraint(2), None).z0
        output.square().sum().backward()
        return output, {name: each.grad for name, each in network.named_parameters() if each.grad is not None}

    (output, gradients), (expected, others) = outputs_and_gradients(True), outputs_and_gradients(False)
    assert torch.allclose(output, expected, atol=1e-6)
    assert gradients.keys() == others.keys()
    assert all(torch.allclose(gradients[name], others[name], atol=1e-4) for name in others)


def test_what_z_is_at_given_positions_does_not_matter() -> None:
    network, z = make(), noise(1)
    changed = z.clone()
    changed[0, :3] += 5
    assert torch.equal(
        estimate(network, z, constraint(1, given=3)), estimate(network, changed, constraint(1, given=3))
    )


def test_rows_do_not_see_each_other_and_the_time_matters() -> None:
    network, z = make(), noise(3)
    together = estimate(network, z, constraint(3))
    assert torch.allclose(estimate(network, z[1:2], constraint(1))[0], together[1], atol=1e-5)
    assert not torch.allclose(estimate(network, z, constraint(3), timestep=0.9), together, atol=1e-4)


def test_it_is_as_large_as_bert_base() -> None:
    """Twelve layers of 4W² + 2WF and biases; the released model has 91 million parameters with its table."""
    with torch.device("meta"):
        network = make(LayerShape(768, 3072, 12, dropout=0.0), layers=12, positions=128)
    layer = sum(parameter.numel() for parameter in network.layers[0].parameters())
    bert = nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", device="meta")
    assert layer == sum(parameter.numel() for parameter in bert.parameters())
    assert any(isinstance(module, nn.GELU) for module in network.layers.modules())


def test_bfloat16_weights_give_float32_estimates() -> None:
    assert estimate(make().to(torch.bfloat16), noise(2), constraint(2)).dtype == torch.float32
