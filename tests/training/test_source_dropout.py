"""Some rows lose their source, by their keys; nothing else changes."""

from __future__ import annotations

import pytest
import torch

from noise2text.core.random import key
from noise2text.data.ragged import Rows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.registry import find_recipe
from noise2text.training.objective import Objective
from noise2text.training.source_dropout import Dropping

from ..conftest import shrunk

SOURCES = [[8, 9, 10, 11], [12, 13], [14, 15, 16]] * 20
TARGETS = [[20, 21, 22], [23, 24, 25, 26, 27], [28]] * 20
KEYS = key(0, torch.arange(len(SOURCES)))


def make(name: str, tokenizer: Tokenizer, rate: float):  # type: ignore[no-untyped-def]
    """The system, its plain objective, and the objective that drops sources."""
    settings = shrunk(find_recipe(name).settings("tiny"), unconditional=0.0, guidance=0.0, dropout=0.0)
    torch.manual_seed(0)
    system = find_recipe(name).build(settings, tokenizer)
    for parameter in system.denoiser.parameters():  # untrained weights hardly look at the source
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    plain: Objective = find_recipe(name).objective(settings, system)
    return system, plain, Dropping(plain, system.layout, rate)


@pytest.mark.parametrize("name", ["diffuseq-guided", "diffuseq-staggered", "difformer", "seqdiffuseq"])
def test_a_dropped_row_is_trained_as_its_blank_twin_and_the_others_as_they_are(
    name: str, tokenizer: Tokenizer
) -> None:
    system, plain, dropping = make(name, tokenizer, 0.4)
    canvas = system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    draws = dropping.draw(canvas, KEYS, key(0))
    assert 0 < draws.rows.sum() < len(SOURCES)
    made = dropping(canvas, draws)["vlb"].value
    with_source = plain(canvas, draws.inner)["vlb"].value
    without = plain(system.layout.blank(canvas), draws.inner)["vlb"].value
    expected = torch.where(draws.rows[:, None], without, with_source)
    counted = dropping.terms["vlb"].mask(canvas)
    assert torch.allclose(made[counted], expected[counted], atol=1e-5)
    assert not torch.allclose(with_source[counted], without[counted], atol=1e-4)


def test_the_rate_is_kept_and_a_row_is_dropped_by_its_key_alone(tokenizer: Tokenizer) -> None:
    system, plain, dropping = make("diffuseq-guided", tokenizer, 0.3)
    canvas = system.layout.canvas(Rows.of([[8]] * 3000), Rows.of([[9]] * 3000))
    keys = key(1, torch.arange(3000))
    rows = dropping.draw(canvas, keys, key(0)).rows
    assert rows.float().mean().item() == pytest.approx(0.3, abs=0.03)
    few = system.layout.canvas(Rows.of([[8]] * 10), Rows.of([[9]] * 10))
    assert torch.equal(dropping.draw(few, keys[100:110], key(7)).rows, rows[100:110])
    inner = dropping.draw(few, keys[:10], key(0)).inner  # the same chances as without dropping
    assert torch.equal(inner.noise, plain.draw(few, keys[:10], key(0)).noise)


def test_validation_keeps_every_source(tokenizer: Tokenizer) -> None:
    system, plain, dropping = make("diffuseq-guided", tokenizer, 0.9)
    canvas = system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    draws = dropping.eval().draw(canvas, KEYS, key(0))
    assert not draws.rows.any()
    made, expected = dropping(canvas, draws)["vlb"], plain(canvas, draws.inner)["vlb"]
    assert torch.equal(made.value, expected.value)


def test_what_is_observed_reaches_the_times_within(tokenizer: Tokenizer) -> None:
    system, plain, dropping = make("diffuseq-guided", tokenizer, 0.5)
    canvas = system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    draws = dropping.draw(canvas, KEYS, key(0))
    dropping.observe(*dropping.seen(draws, dropping(canvas, draws)))
    assert plain.times.counts.sum() == len(SOURCES)
    assert any(name.endswith("times.counts") for name, _ in dropping.named_buffers())  # saved, too


def test_a_refit_due_within_is_made(tokenizer: Tokenizer) -> None:
    settled: list[int] = []
    _, plain, dropping = make("difformer", tokenizer, 0.5)
    plain.settle = settled.append
    dropping.settle(7)
    assert settled == [7]
