"""Every diffusion model bounds its likelihood, autoregressive ones compute it, the others say why not."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

import noise2text
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import Model
from noise2text.models.likelihood_bound import summarize_pairs
from noise2text.models.registry import find_recipe

from ..conftest import DIFFUSION, Make, shrunk

SOURCES = ["7 april 1957", "12. mai 2001", "a"]
TARGETS = ["1957-04-07", "2001", "1"]
LENGTH_PREDICTING = ("difformer", "dinoiser", "flow")


def build(name: str, tokenizer: Tokenizer, **changes: Any) -> Model:
    """A small untrained model."""
    recipe = find_recipe(name)
    torch.manual_seed(0)
    model: Model = recipe.build(shrunk(recipe.preset("tiny"), **changes), tokenizer)
    return model.eval()


@pytest.mark.parametrize("name", DIFFUSION)
def test_the_bound_of_every_diffusion_model(name: str, tokenizer: Tokenizer) -> None:
    model = build(name, tokenizer)
    bound = model.likelihood_bound(SOURCES, TARGETS, samples=3)
    wanted = {"prior", "diffusion", "rounding"} | ({"length"} if name in LENGTH_PREDICTING else set())
    assert set(bound.terms) == wanted
    assert all(math.isfinite(nats) and nats >= 0 for nats in bound.terms.values())
    assert bound.terms["rounding"] > 0
    assert not bound.is_exact
    # Given positions and padding do not count; the end or the length does.
    assert bound.num_tokens == sum(len(row) + 1 for row in tokenizer.encode(TARGETS))
    assert bound.nats_per_token == pytest.approx(sum(bound.pair_nats) / bound.num_tokens)
    assert sum(each.nats_per_token for each in bound.intervals) == pytest.approx(bound.terms["diffusion"])
    assert [each.start for each in bound.intervals][1:] == [each.end for each in bound.intervals][:-1]
    alone = model.likelihood_bound(SOURCES, TARGETS, samples=3, batch=1)
    assert alone.pair_nats == pytest.approx(bound.pair_nats, rel=1e-3)
    other = model.likelihood_bound(SOURCES, TARGETS, samples=3, seed=1)
    assert other.pair_nats != bound.pair_nats
    assert "self-conditioning:off" in bound.signature


@pytest.mark.parametrize("name", ["transformer", "gru"])
def test_autoregressive_likelihoods_are_exact(name: str, tokenizer: Tokenizer) -> None:
    model = build(name, tokenizer)
    bound = model.likelihood_bound(SOURCES, TARGETS)
    assert bound.is_exact
    log_probs = model.likelihood(SOURCES, TARGETS)  # type: ignore[operator]
    assert bound.pair_nats == pytest.approx([-value for value in log_probs])
    assert bound.num_tokens == sum(len(row) + 1 for row in tokenizer.encode(TARGETS))
    assert bound.nats_per_token == pytest.approx(-sum(log_probs) / bound.num_tokens)
    assert bound.perplexity == pytest.approx(math.exp(bound.nats_per_token))
    assert bound.intervals == ()


@pytest.mark.parametrize("name", ["cmlm", "levenshtein", "copy", "nearest", "gpvae"])
def test_other_models_say_that_they_have_none(name: str, tokenizer: Tokenizer) -> None:
    with pytest.raises(Problem, match="no likelihood") as caught:
        build(name, tokenizer).likelihood_bound(SOURCES, TARGETS)
    assert "Use a diffusion model" in str(caught.value)


def test_the_noise_of_the_chain_is_that_of_training_or_the_given_one(small: Make) -> None:
    model = small(noise_factor=2.0)
    plain, noisier = (
        model.likelihood_bound(SOURCES, TARGETS, samples=3, sampling_noise_factor=factor)
        for factor in (1.0, 2.0)
    )
    # The estimates of a network at its start hardly depend on z, and the weights fall by the square.
    assert noisier.terms["diffusion"] == pytest.approx(plain.terms["diffusion"] / 4, rel=0.1)
    assert noisier.terms["length"] == plain.terms["length"]
    assert "noise-factor:2" in noisier.signature
    assert model.likelihood_bound(SOURCES, TARGETS, samples=3).pair_nats == noisier.pair_nats


def test_without_a_length_predictor_the_noise_is_that_of_generation(tokenizer: Tokenizer) -> None:
    model = build("diffuseq", tokenizer, sampling_noise_factor=3.0)
    given = model.likelihood_bound(SOURCES, TARGETS, samples=3, sampling_noise_factor=3.0)
    assert model.likelihood_bound(SOURCES, TARGETS, samples=3).pair_nats == given.pair_nats


def test_targets_that_cannot_be_generated_are_left_out_and_counted(small: Make) -> None:
    bound = small().likelihood_bound(["a", "a", "", "b"], ["1", "1" * 17, "1", ""], samples=1)
    assert [math.isinf(nats) for nats in bound.pair_nats] == [False, True, True, True]
    assert (bound.num_skipped, bound.num_tokens, bound.standard_error) == (3, 2, None)
    assert bound.as_json()["pair_nats"][1:] == [None] * 3
    with pytest.raises(Problem, match="can generate none"):
        small().likelihood_bound(["a"], ["1" * 17])
    with pytest.raises(Problem, match="at least 1"):
        small().likelihood_bound(["a"], ["1"], samples=0)
    with pytest.raises(Problem, match="equal lengths"):
        small().likelihood_bound(["a"], [])


def test_the_standard_error_is_that_of_a_mean_where_texts_have_one_token() -> None:
    nats = torch.tensor([1.0, 2.0, 4.0, 7.0], dtype=torch.float64)
    bound = summarize_pairs(
        [{"tokens": each} for each in nats.tolist()], [1] * 4, is_exact=True, signature=""
    )
    assert bound.standard_error == pytest.approx((nats.std() / 2).item())
    assert dataclasses.replace(bound, terms={"tokens": 1e6}).perplexity == math.inf


def test_a_better_text_has_the_lower_bound_and_a_longer_chain_too() -> None:
    model = noise2text.load("de-en", device="cpu", precision="float32")
    sources, targets = ["Guten Morgen."] * 2, ["Good morning.", "Two brothers."]
    right, wrong = model.likelihood_bound(sources, targets, samples=8).pair_nats
    assert right < wrong
    coarse, fine = (model.likelihood_bound(sources, targets, samples=40, steps=steps) for steps in (5, 40))
    assert fine.nats_per_token < coarse.nats_per_token


def test_likelihood_bound_takes_one_step_and_a_seed_of_numpy() -> None:
    model: Any = noise2text.load("de-en", device="cpu", precision="float32")
    bound = model.likelihood_bound(["Hallo."], ["Hello."], steps=1, seed=np.int64(1))
    assert bound.terms["diffusion"] == 0 < bound.terms["rounding"]
