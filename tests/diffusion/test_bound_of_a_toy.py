"""The bound of a model of two words in one dimension is what numerical integration says, and above −log p."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.integrate import trapezoid
from scipy.stats import norm
from torch import Tensor

from noise2text.core.random import make_key
from noise2text.data.layouts.base import Canvas, Source
from noise2text.data.layouts.split import SplitLayout
from noise2text.data.ragged import RaggedRows
from noise2text.diffusion.schedules import LinearSchedule, Rescaled, Schedule, SignalFloor
from noise2text.diffusion.variational_bound import BoundTerms, VariationalBound
from noise2text.nn.denoiser import Constraint, Denoiser, EncoderOutput, Estimate, NoiseLevel
from noise2text.nn.embeddings import TokenEmbedding

GRID = np.linspace(-11, 11, 801)
TIMES = torch.tensor([1.0, 0.6, 0.3, 0.1], dtype=torch.float64)
SCHEDULES: dict[str, Schedule] = {
    "linear": LinearSchedule(),
    "more noise": Rescaled(LinearSchedule(), 2.0),
    "some signal at the end": SignalFloor(LinearSchedule(), 0.02),
}
Array = NDArray[np.float64]


class ToyDenoiser(Denoiser):
    """Two words at −1 and 1.5; the estimate is a curve of z and α that is not the best one."""

    def __init__(self, vectors: tuple[float, float] = (-1.0, 1.5)) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(2, 1, scale=1.0, bias=True)
        with torch.no_grad():
            self.embedding.weight.copy_(torch.tensor(vectors)[:, None])
            assert self.embedding.bias is not None
            self.embedding.bias.copy_(torch.tensor([0.3, 0.0]))

    def encode(self, source: Source) -> EncoderOutput:
        return None  # type: ignore[return-value]

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        z0 = curve(z, level.alpha.to(z.dtype))
        return Estimate(z0, z0)


def curve(z: Tensor, alpha: Tensor) -> Tensor:
    return 0.25 + 1.1 * torch.tanh(0.8 * z + 0.5 * alpha)


def canvas_of(word: int, rows: int) -> Canvas:
    words = RaggedRows.from_lists([[word]] * rows)
    return SplitLayout(pad=0).make_canvas(words, words)


def measure(
    schedule: Schedule, word: int, *, rows: int, samples: int = 100, times: Tensor = TIMES
) -> BoundTerms:
    bound = VariationalBound(ToyDenoiser(), schedule, times, samples)
    return bound(canvas_of(word, rows), make_key(7, torch.arange(rows)))


def levels(schedule: Schedule) -> list[tuple[float, float]]:
    """α and σ of each time."""
    level: NoiseLevel = schedule(TIMES, 1)
    return list(zip(level.alpha.flatten().tolist(), level.sigma.flatten().tolist(), strict=True))


def estimate(alpha: float) -> Array:
    return curve(torch.from_numpy(GRID), torch.tensor(alpha)).numpy()


def word_probs(alpha: float) -> Array:
    """p(word | z) on the grid, (2, Z)."""
    scores = ToyDenoiser().embedding.weight.detach().numpy() * estimate(alpha) + np.array([[0.3], [0.0]])
    odds: Array = np.exp(scores)
    return odds / odds.sum(0)


def posterior_density(now: tuple[float, float], then: tuple[float, float], z0: Array | float) -> Array:
    """q(z_s | z_t, z₀) by Bayes' rule, (Z_s, Z_t); z₀ may depend on z_t."""
    ratio, z_s, z_t = now[0] / then[0], GRID[:, None], GRID[None]
    added = math.sqrt(now[1] ** 2 - (ratio * then[1]) ** 2)
    joint = norm.pdf(z_t, ratio * z_s, added) * norm.pdf(z_s, then[0] * z0, then[1])
    density: Array = joint / trapezoid(joint, GRID, axis=0)
    return density


def exact_probs(schedule: Schedule) -> Array:
    """p(word) of both words: the density of z, step by step, then rounding."""
    chain = levels(schedule)
    density = norm.pdf(GRID, 0, chain[0][1])
    for now, then in pairwise(chain):
        density = trapezoid(posterior_density(now, then, estimate(now[0])) * density, GRID, axis=1)
    probs: Array = trapezoid(word_probs(chain[-1][0]) * density, GRID, axis=1)
    return probs


def integrated_terms(schedule: Schedule, word: int) -> tuple[float, list[float], float]:
    """The terms as integrals of densities: log(q/p) under q."""
    chain, z0 = levels(schedule), ToyDenoiser().embedding.weight[word].item()
    marginals = [norm.pdf(GRID, alpha * z0, sigma) for alpha, sigma in chain]
    start = norm.pdf(GRID, 0, chain[0][1])
    prior = trapezoid(marginals[0] * np.log(marginals[0] / start), GRID)
    steps = []
    for now, then, marginal in zip(chain, chain[1:], marginals, strict=False):
        true, model = (posterior_density(now, then, each) for each in (z0, estimate(now[0])))
        inner = np.where(true > 1e-200, true * np.log((true + 1e-300) / (model + 1e-300)), 0)
        steps.append(float(trapezoid(marginal * trapezoid(inner, GRID, axis=0), GRID)))
    rounding = trapezoid(-marginals[-1] * np.log(word_probs(chain[-1][0])[word]), GRID)
    return float(prior), steps, float(rounding)


def assert_mean(values: Tensor, expected: float) -> None:
    error = (values.std() / math.sqrt(len(values))).item()
    assert values.mean().item() == pytest.approx(expected, abs=4.5 * error + 1e-6)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("word", [0, 1])
def test_the_terms_are_integrals_and_their_sum_is_above_the_exact_one(name: str, word: int) -> None:
    schedule, found = SCHEDULES[name], measure(SCHEDULES[name], word, rows=20_000)
    prior, steps, rounding = integrated_terms(schedule, word)
    torch.testing.assert_close(found.prior[:1], torch.tensor([prior]).double(), rtol=1e-4, atol=1e-9)
    assert found.diffusion.shape[1] == len(steps) == 3
    for column, expected in zip(found.diffusion.unbind(1), steps, strict=True):
        assert_mean(column, expected)
    assert_mean(found.rounding, rounding)
    probs = exact_probs(schedule)
    assert probs.sum() == pytest.approx(1, abs=1e-4)
    assert prior + sum(steps) + rounding > -math.log(probs[word])
    assert found.total().mean().item() > -math.log(probs[word])


def test_where_nothing_is_hidden_the_bound_is_exact() -> None:
    """With one embedding for both words and a right estimate, only the rounding is left."""
    denoiser = ToyDenoiser((0.25, 0.25))
    denoiser.forward = lambda z, *rest: Estimate(torch.full_like(z, 0.25), z)  # type: ignore[method-assign]
    bound = VariationalBound(denoiser, LinearSchedule(), TIMES, 100)
    found = torch.stack([bound(canvas_of(word, 2), make_key(7, torch.arange(2))).total() for word in (0, 1)])
    probs = (-found).exp()
    torch.testing.assert_close(probs.sum(0), torch.ones(2).double(), rtol=1e-4, atol=1e-4)
    logits = torch.tensor([0.0625 + 0.3, 0.0625])
    torch.testing.assert_close(found[:, 0].float(), -logits.log_softmax(0), rtol=1e-3, atol=1e-3)


def test_fewer_samples_than_steps_have_the_same_mean() -> None:
    times = torch.linspace(1, 0.02, 13, dtype=torch.float64)
    every, few = (
        measure(LinearSchedule(), 1, rows=20_000, samples=samples, times=times) for samples in (12, 5)
    )
    assert (every.diffusion.shape[1], few.diffusion.shape[1]) == (12, 5)
    edges = VariationalBound(ToyDenoiser(), LinearSchedule(), times, 5).interval_edges.tolist()
    assert edges == [0, 2, 4, 7, 9, 12]
    for column, first, end in zip(few.diffusion.unbind(1), edges, edges[1:], strict=False):
        wanted = every.diffusion[:, first:end].sum(1)
        spread = math.sqrt((column.var() + wanted.var()).item() / len(column))
        assert column.mean().item() == pytest.approx(wanted.mean().item(), abs=4.5 * spread)
