"""A classifier reads the text alone: neither its place on the canvas nor what is around it matters."""

from __future__ import annotations

import pytest
import torch

from noise2text.nn.classifier import Classifier


@pytest.fixture
def classifier() -> Classifier:
    torch.manual_seed(0)
    return Classifier(4, 3, room=6, width=8, ffn=16, heads=2, layers=2, dropout=0.1).eval()


def test_the_place_of_the_text_and_what_is_around_it_change_nothing(classifier: Classifier) -> None:
    text, clock = torch.randn(2, 3, 4), torch.tensor([[0.2], [0.7]])
    alone = classifier(text, clock, torch.ones(2, 3, dtype=torch.bool))
    canvas, where = torch.randn(2, 9, 4), torch.zeros(2, 9, dtype=torch.bool)
    canvas[:, 4:7], where[:, 4:7] = text, True
    assert torch.allclose(classifier(canvas, clock, where), alone, atol=1e-6)
    canvas[:, 4] += 1
    assert not torch.allclose(classifier(canvas, clock, where), alone, atol=1e-3)


def test_only_its_room_is_read(classifier: Classifier) -> None:
    z, clock, where = torch.randn(1, 9, 4), torch.tensor([[0.5]]), torch.ones(1, 9, dtype=torch.bool)
    before = classifier(z, clock, where)
    z[:, 6:] = 7
    assert torch.equal(classifier(z, clock, where), before)


def test_the_time_may_be_of_the_row_or_of_each_position(classifier: Classifier) -> None:
    z, where = torch.randn(2, 5, 4), torch.ones(2, 5, dtype=torch.bool)
    clock = torch.tensor([[0.2], [0.7]])
    whole = classifier(z, clock, where)
    assert torch.equal(classifier(z, clock.expand(2, 5), where), whole)
    assert not torch.allclose(classifier(z, 1 - clock, where), whole, atol=1e-4)
    assert torch.equal(classifier(z[:1], clock[:1], where[:1]), classifier(z[:1], clock[0, None], where[:1]))


def test_every_parameter_gets_a_gradient(classifier: Classifier) -> None:
    scores = classifier(torch.randn(2, 6, 4), torch.tensor([[0.2], [0.7]]), torch.ones(2, 6).bool())
    scores.log_softmax(-1)[:, 0].sum().backward()
    for name, parameter in classifier.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
