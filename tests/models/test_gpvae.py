"""GPVAE: the divergence is torch's, the prior is a Gaussian process, and the scalar makes texts differ."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.decoder import SourceBatch
from noise2text.models import AutoregressiveModel
from noise2text.models.gpvae import JITTER, Latents, covariance, gaussian_process_kl
from noise2text.models.registry import find_recipe
from noise2text.recipes.gpvae import GPVAEModel
from noise2text.training.loop import StepSettings, train_steps

from ..conftest import shrunk

TEXTS = ["sunday, 7 april 1957", "12. mai 2001", "1 june 1999", "3. 3. 2044", "friday, 1 may 1964", "2.2.22"]
TARGETS = ["1957-04-07", "2001-05-12", "1999-06-01", "2044-03-03", "1964-05-01", "2022-02-02"]


def made(tokenizer: Tokenizer, **changes: Any) -> tuple[GPVAEModel, Any]:
    """A small untrained model and its objective."""
    recipe = find_recipe("gpvae")
    config = shrunk(recipe.preset("tiny"), **changes)
    torch.manual_seed(0)
    model = recipe.build(config, tokenizer)
    return model.eval(), recipe.objective(config, model)


def random_states(length: int = 5, *, width: int = 4) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(2, length, width), torch.zeros(2, length, dtype=torch.bool)


def test_the_divergence_is_torchs() -> None:
    states, padding = random_states()
    prior = covariance(states, padding, variance=2.0, scale=1.5).double()
    mean, prior_mean = torch.randn(2, 2, 5, 3, dtype=torch.double)
    variance = torch.rand(2, 5, 3, dtype=torch.double) + 0.1
    ours = gaussian_process_kl(mean - prior_mean, variance, prior)
    for dimension in range(3):
        posterior = MultivariateNormal(mean[..., dimension], torch.diag_embed(variance[..., dimension]))
        process = MultivariateNormal(prior_mean[..., dimension], prior)
        torch.testing.assert_close(ours[:, dimension], kl_divergence(posterior, process))


def test_the_covariance_is_stationary_symmetric_and_positive_definite() -> None:
    states, padding = random_states(12)
    states[:, 3] = states[:, 7]  # a word that is said twice
    kernel = covariance(states, padding, variance=3.0, scale=1.2)
    torch.testing.assert_close(
        covariance(states + 5.0, padding, variance=3.0, scale=1.2), kernel, atol=1e-4, rtol=1e-4
    )
    assert torch.equal(kernel, kernel.mT)
    assert (torch.linalg.eigvalsh(kernel.double()) > 0).all()
    torch.testing.assert_close(kernel.diagonal(dim1=1, dim2=2), torch.full((2, 12), 3.0 * (1 + JITTER)))
    torch.testing.assert_close(kernel[:, 3, 7], torch.full((2,), 3.0))
    distance = (states[0, 0] - states[0, 1]).square().sum()
    torch.testing.assert_close(kernel[0, 0, 1], 3.0 * torch.exp(-distance / (2 * 1.2**2)))


def test_a_small_scale_makes_the_prior_white() -> None:
    states, padding = random_states()
    kernel = covariance(states, padding, variance=1.0, scale=1e-3)
    torch.testing.assert_close(kernel, (1 + JITTER) * torch.eye(5).expand(2, 5, 5))


def test_padding_changes_no_divergence(tokenizer: Tokenizer) -> None:
    model, _ = made(tokenizer)
    torch.manual_seed(2)
    parts = torch.randn(4, 2, 7, 32)
    alone = torch.zeros(2, 5, dtype=torch.bool)
    padded = torch.cat([alone, ~alone[:, :2]], dim=1)
    states, mean, log_variance, prior_mean = parts
    wide = model.network.kl_to_prior(Latents(states, padded, mean, log_variance, prior_mean))
    short = [part[:, :5] for part in parts]
    tight = model.network.kl_to_prior(Latents(short[0], alone, *short[1:]))
    torch.testing.assert_close(wide, tight, rtol=1e-4, atol=1e-4)
    assert (tight > 0).all()


def canvas_of(model: GPVAEModel) -> Any:
    sources, targets = (RaggedRows.from_lists(model.tokenizer.encode(texts)) for texts in (TEXTS, TARGETS))
    return model.layout.make_canvas(sources, targets)


def test_gradients_reach_every_parameter_and_the_divergence_counts_sentences(tokenizer: Tokenizer) -> None:
    model, objective = made(tokenizer)
    canvas = canvas_of(model)
    counts = objective.counts(canvas)
    assert counts["kl"] == len(TEXTS)
    assert counts["nll"] == sum(len(target) + 1 for target in TARGETS)
    token_losses = objective(
        canvas, objective.draw(canvas, make_key(0, torch.arange(len(TEXTS))), make_key(0))
    )
    means = {name: token_loss.total() / counts[name] for name, token_loss in token_losses.items()}
    loss = objective.loss(means)
    torch.testing.assert_close(loss, means["smoothed"] + 0.1 * means["kl"])
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_without_noise_the_loss_is_that_of_the_means(tokenizer: Tokenizer) -> None:
    model, objective = made(tokenizer)
    canvas = canvas_of(model)
    noise = objective.draw(canvas, make_key(0, torch.arange(len(TEXTS))), make_key(0))
    silent, loud = (objective(canvas, draws)["nll"].total() for draws in (0 * noise, noise))
    likelihood = sum(model.likelihood(TEXTS, TARGETS))
    assert float(silent.detach()) == pytest.approx(-likelihood, rel=1e-4)
    assert float(loud.detach()) != pytest.approx(-likelihood, rel=1e-4)


@pytest.fixture(scope="module")
def overfitted(tokenizer: Tokenizer) -> GPVAEModel:
    """A small model that has learned six pairs by heart."""
    model, objective = made(tokenizer)
    canvas = canvas_of(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in train_steps(
        objective,
        optimizer,
        lambda step: [canvas],
        first=1,
        last=250,
        settings=StepSettings(peak_lr=3e-3, lr_schedule=lambda step: 1.0, clip_norm=1.0, seed=0),
    ):
        pass
    return model.eval()


def distinct(model: GPVAEModel, latent_noise_scale: float) -> int:
    """How many different texts sixteen noises give, over all sentences."""
    result = model.generate(TEXTS, latent_noise_scale=latent_noise_scale, noises=16, seed=1)
    assert all(len(candidates) == 16 for candidates in result.candidates)
    return sum(len(set(candidates)) for candidates in result.candidates)


def test_the_scalar_trades_certainty_for_diversity(overfitted: GPVAEModel) -> None:
    assert overfitted.generate(TEXTS, latent_noise_scale=0).texts == TARGETS
    counts = [distinct(overfitted, latent_noise_scale) for latent_noise_scale in (0.0, 1.0, 4.0, 16.0)]
    assert counts[0] == len(TEXTS)
    assert counts == sorted(counts)
    assert counts[3] > counts[1]


def test_the_scalar_0_is_the_means_whatever_the_seed(overfitted: GPVAEModel) -> None:
    first, second = (overfitted.generate(TEXTS, latent_noise_scale=0, noises=3, seed=seed) for seed in (1, 2))
    assert first.candidates == second.candidates
    assert all(len(set(candidates)) == 1 for candidates in first.candidates)
    rows = overfitted.tokenizer.encode(TEXTS)
    plain = AutoregressiveModel.build_decoder(overfitted, overfitted.generation_config, overfitted.network)
    means = plain.decode(SourceBatch(rows, range(len(rows))))
    assert overfitted.tokenizer.decode([candidates.tokens[0] for candidates in means]) == first.texts


@pytest.mark.parametrize("options", [{}, {"beam": 2}, {"samples": 2}])
def test_neither_the_batch_nor_the_number_of_noises_changes_a_text(
    overfitted: GPVAEModel, options: dict[str, Any]
) -> None:
    loud: dict[str, Any] = options | {"latent_noise_scale": 16.0, "seed": 6}
    together = overfitted.generate(TEXTS, noises=3, **loud)
    alone = overfitted.generate(TEXTS, noises=3, batch=1, **loud)
    fewer = overfitted.generate(TEXTS, noises=2, **loud)
    assert together.candidates == alone.candidates
    each = max(options.values(), default=1)
    for many, few in zip(together.candidates, fewer.candidates, strict=True):
        assert len(many) == 3 * each
        assert many[: 2 * each] == few


def test_a_trace_shows_all_noises_to_their_ends(overfitted: GPVAEModel) -> None:
    made = overfitted.generate(TEXTS[:2], noises=3, latent_noise_scale=16.0, trace=True)
    for text, trace in zip(made.texts, made.traces, strict=True):
        assert trace[-1].text == text
        assert [stop.time for stop in trace] == sorted((stop.time for stop in trace), reverse=True)


def test_impossible_settings_are_refused(tokenizer: Tokenizer) -> None:
    model, _ = made(tokenizer)
    for config, said in (
        ({"latent_noise_scale": -1}, "latent_noise_scale must be at least 0"),
        ({"noises": 0}, "noises must be"),
    ):
        with pytest.raises(Problem, match=said):
            model.generate(TEXTS, **config)  # type: ignore[arg-type]
    with pytest.raises(Problem, match="kernel_length_scale must be above 0"):
        made(tokenizer, kernel_length_scale=0.0)
