"""A classifier reads the text alone: neither its place on the canvas nor what is around it matters."""

from __future__ import annotations

import pytest
import torch

from noise2text.nn.classifier import Classifier
from noise2text.nn.layers import LayerShape


@pytest.fixture
def classifier() -> Classifier:
    torch.manual_seed(0)
    return Classifier(4, 3, LayerShape(8, 16, 2, dropout=0.1), max_positions=6, layers=2).eval()


def test_the_position_of_the_text_and_the_rest_of_the_canvas_change_nothing(classifier: Classifier) -> None:
    text, timestep = torch.randn(2, 3, 4), torch.tensor([[0.2], [0.7]])
    alone = classifier(text, timestep, torch.ones(2, 3, dtype=torch.bool))
    canvas, text_mask = torch.randn(2, 9, 4), torch.zeros(2, 9, dtype=torch.bool)
    canvas[:, 4:7], text_mask[:, 4:7] = text, True
    assert torch.allclose(classifier(canvas, timestep, text_mask), alone, atol=1e-6)
    canvas[:, 4] += 1
    assert not torch.allclose(classifier(canvas, timestep, text_mask), alone, atol=1e-3)


def test_only_max_positions_are_read(classifier: Classifier) -> None:
    z, timestep, text_mask = torch.randn(1, 9, 4), torch.tensor([[0.5]]), torch.ones(1, 9, dtype=torch.bool)
    before = classifier(z, timestep, text_mask)
    z[:, 6:] = 7
    assert torch.equal(classifier(z, timestep, text_mask), before)


def test_a_timestep_may_be_one_per_row_or_one_per_position(classifier: Classifier) -> None:
    z, text_mask = torch.randn(2, 5, 4), torch.ones(2, 5, dtype=torch.bool)
    timestep = torch.tensor([[0.2], [0.7]])
    whole = classifier(z, timestep, text_mask)
    assert torch.equal(classifier(z, timestep.expand(2, 5), text_mask), whole)
    assert not torch.allclose(classifier(z, 1 - timestep, text_mask), whole, atol=1e-4)
    assert torch.equal(
        classifier(z[:1], timestep[:1], text_mask[:1]), classifier(z[:1], timestep[0, None], text_mask[:1])
    )


def test_every_parameter_gets_a_gradient(classifier: Classifier) -> None:
    scores = classifier(torch.randn(2, 6, 4), torch.tensor([[0.2], [0.7]]), torch.ones(2, 6).bool())
    scores.log_softmax(-1)[:, 0].sum().backward()
    for name, parameter in classifier.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
