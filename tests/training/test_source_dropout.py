"""Some rows lose their source, by their keys; nothing else changes."""

from __future__ import annotations

import pytest
import torch

from noise2text.core.config import has_setting
from noise2text.core.random import make_key
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.registry import find_recipe
from noise2text.training.objective import Objective
from noise2text.training.source_dropout import SourceDropout

from ..conftest import shrunk

SOURCES = [[8, 9, 10, 11], [12, 13], [14, 15, 16]] * 20
TARGETS = [[20, 21, 22], [23, 24, 25, 26, 27], [28]] * 20
KEYS = make_key(0, torch.arange(len(SOURCES)))


def make(name: str, tokenizer: Tokenizer, rate: float):  # type: ignore[no-untyped-def]
    """The system, its plain objective, and the objective that drops sources."""
    tiny = find_recipe(name).preset("tiny")
    off = [name for name in ("source_dropout", "guidance_weight", "dropout") if has_setting(tiny, name)]
    config = shrunk(tiny, **dict.fromkeys(off, 0.0))
    torch.manual_seed(0)
    model = find_recipe(name).build(config, tokenizer)
    for parameter in model.denoiser.parameters():  # untrained weights hardly look at the source
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    plain: Objective = find_recipe(name).objective(config, model)
    return model, plain, SourceDropout(plain, model.layout, rate)


@pytest.mark.parametrize("name", ["diffuseq-guided", "diffuseq-position-sigmoid", "difformer", "seqdiffuseq"])
def test_a_dropped_row_is_trained_as_its_blank_twin_and_the_others_as_they_are(
    name: str, tokenizer: Tokenizer
) -> None:
    model, plain, source_dropout = make(name, tokenizer, 0.4)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    draws = source_dropout.draw(canvas, KEYS, make_key(0))
    assert 0 < draws.dropped.sum() < len(SOURCES)
    made = source_dropout(canvas, draws)["vlb"].values
    with_source = plain(canvas, draws.inner)["vlb"].values
    without = plain(model.layout.without_source(canvas), draws.inner)["vlb"].values
    expected = torch.where(draws.dropped[:, None], without, with_source)
    counted = source_dropout.terms["vlb"].make_mask(canvas)
    assert torch.allclose(made[counted], expected[counted], atol=1e-5)
    assert not torch.allclose(with_source[counted], without[counted], atol=1e-4)


def test_the_rate_is_kept_and_a_row_is_dropped_by_its_key_alone(tokenizer: Tokenizer) -> None:
    model, plain, source_dropout = make("diffuseq-guided", tokenizer, 0.3)
    canvas = model.layout.make_canvas(
        RaggedRows.from_lists([[8]] * 3000), RaggedRows.from_lists([[9]] * 3000)
    )
    keys = make_key(1, torch.arange(3000))
    dropped = source_dropout.draw(canvas, keys, make_key(0)).dropped
    assert dropped.float().mean().item() == pytest.approx(0.3, abs=0.03)
    few = model.layout.make_canvas(RaggedRows.from_lists([[8]] * 10), RaggedRows.from_lists([[9]] * 10))
    assert torch.equal(source_dropout.draw(few, keys[100:110], make_key(7)).dropped, dropped[100:110])
    inner = source_dropout.draw(few, keys[:10], make_key(0)).inner  # the same chances as without dropping
    assert torch.equal(inner.noise, plain.draw(few, keys[:10], make_key(0)).noise)


def test_validation_keeps_every_source(tokenizer: Tokenizer) -> None:
    model, plain, source_dropout = make("diffuseq-guided", tokenizer, 0.9)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    draws = source_dropout.eval().draw(canvas, KEYS, make_key(0))
    assert not draws.dropped.any()
    made, expected = source_dropout(canvas, draws)["vlb"], plain(canvas, draws.inner)["vlb"]
    assert torch.equal(made.values, expected.values)


def test_what_is_observed_reaches_the_times_within(tokenizer: Tokenizer) -> None:
    model, plain, source_dropout = make("diffuseq-guided", tokenizer, 0.5)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    draws = source_dropout.draw(canvas, KEYS, make_key(0))
    source_dropout.observe(*source_dropout.collect_observations(draws, source_dropout(canvas, draws)))
    assert plain.time_sampler.counts.sum() == len(SOURCES)
    saved = [name for name, _ in source_dropout.named_buffers()]
    assert any(name.endswith("time_sampler.counts") for name in saved)


def test_the_inner_objective_adapts(tokenizer: Tokenizer) -> None:
    steps: list[int] = []
    _, plain, source_dropout = make("difformer", tokenizer, 0.5)
    plain.adapt = steps.append
    source_dropout.adapt(7)
    assert steps == [7]


def test_what_the_inner_objective_says_of_itself_is_said_of_both(tokenizer: Tokenizer) -> None:
    model, plain, source_dropout = make("diffuseq-guided", tokenizer, 0.5)
    source_dropout.train()
    source_dropout.terms_logged = False
    assert not plain.terms_logged
    plain.terms_logged = True
    assert source_dropout.terms_logged
    plain.terms_logged = False
    assert source_dropout.skipped_terms == plain.skipped_terms != frozenset()
    plain.counts = lambda canvas: {"vlb": torch.tensor(3)}
    plain.means = lambda losses, counts: {"vlb": torch.tensor(5)}
    plain.loss = lambda means: torch.tensor(7)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    assert source_dropout.counts(canvas) == {"vlb": 3}
    assert source_dropout.means({}, {}) == {"vlb": 5}
    assert source_dropout.loss({}) == 7


@pytest.mark.parametrize("capturable", [True, False])
def test_it_is_captured_as_a_graph_if_the_inner_objective_can_be(
    tokenizer: Tokenizer, capturable: bool
) -> None:
    model, plain, _ = make("difformer", tokenizer, 0.5)
    plain.graph_capturable = capturable
    assert SourceDropout(plain, model.layout, 0.5).graph_capturable is capturable
