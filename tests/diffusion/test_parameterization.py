"""Every prediction is converted to z₀ exactly, and its squared error is a weight times ẑ₀'s."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

from noise2text.core.random import make_key
from noise2text.data.layouts.base import Canvas, Source
from noise2text.diffusion.losses import LossInputs, MseLoss
from noise2text.diffusion.parameterization import (
    PARAMETERIZATIONS,
    Parameterization,
    ParameterizedDenoiser,
    PredictMean,
    PredictNoise,
    PredictScore,
    PredictVelocity,
    PredictZ0,
    ResidualNoise,
    ResidualOutput,
    ResidualScore,
)
from noise2text.diffusion.position_sigmoid_schedule import PositionSigmoid
from noise2text.diffusion.sampler import ReverseProcess, SampledStep, sample
from noise2text.diffusion.schedules import (
    SCHEDULES,
    Rescaled,
    Schedule,
    SignalFloor,
    SqrtSchedule,
    VariancePreserving,
)
from noise2text.diffusion.solvers import strided_times
from noise2text.diffusion.variational_bound import kl_weight_of_z0
from noise2text.nn.denoiser import Constraint, Denoiser, EncoderOutput, Estimate, NoiseLevel
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.recipes.flow import RectifiedFlow

from .posterior import kl_weight_of_mean, kl_weight_of_noise, posterior

T, LENGTH, DIM = 50, 6, 4
TIMES = torch.tensor([1 / T, 0.1, 0.5, 0.9], dtype=torch.float64)


class Edm(Schedule):
    """Noise is added and the signal stays (Karras et al., 2022): α = 1, σ = 10·t."""

    def forward(self, t: Tensor, length: int) -> NoiseLevel:
        sigma = 10 * t.double()[:, None, None]
        return NoiseLevel(torch.ones_like(sigma), sigma, self.timestep(t[:, None]))


VARIANCE_PRESERVING = {name: kind(T) for name, kind in SCHEDULES.items()} | {
    "position-sigmoid": SignalFloor(PositionSigmoid(T, target_start=2, positions=4), 0.01)
}
FAMILIES: dict[str, Schedule] = {
    **VARIANCE_PRESERVING,
    "rectified flow": RectifiedFlow(T),
    "rectified flow, F = 3": RectifiedFlow(T, 3.0),
    "sqrt, F = 4": Rescaled(SqrtSchedule(T), 4.0),
    "EDM": Edm(T),
}
"""Schedules of all kinds; in the last four α² + σ² is not 1."""

STILL = ("mean", "position-sigmoid")  # where a position waits for its turn, the next mean is z itself


def output_for(parameterization: Parameterization, z0: Tensor, z: Tensor, level: NoiseLevel) -> Tensor:
    """The output from which z₀ follows."""
    z_weight, output_weight = (weight.to(z.dtype) for weight in parameterization.coefficients_at(level))
    return (z0 - z_weight * z) / output_weight


class Answers(Denoiser):
    """Always gives the same answer."""

    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.embedding, self.answer = TokenEmbedding(9, DIM), answer

    def encode(self, source: Source) -> EncoderOutput:
        return EncoderOutput(*[torch.empty(len(source.tokens), 0)] * 4)

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        return Estimate(self.answer, self.answer)


def noised(schedule: nn.Module) -> tuple[Tensor, Tensor, Tensor, NoiseLevel]:
    """z₀, ε and z at the four times, in float64."""
    torch.manual_seed(0)
    z0, noise = torch.randn(2, len(TIMES), LENGTH, DIM, dtype=torch.float64)
    level: NoiseLevel = schedule(TIMES, LENGTH)
    return z0, noise, level.alpha * z0 + level.sigma * noise, level


def unconstrained(rows: int) -> Constraint:
    mask = torch.zeros(rows, LENGTH, dtype=torch.bool)
    return Constraint(torch.zeros(rows, LENGTH, DIM), mask, mask)


@pytest.mark.parametrize(
    ("name", "family"),
    [(name, family) for name in PARAMETERIZATIONS for family in FAMILIES if (name, family) != STILL],
)
def test_the_true_output_is_converted_to_z0(name: str, family: str) -> None:
    z0, _, z, level = noised(FAMILIES[family])
    parameterization = PARAMETERIZATIONS[name](FAMILIES[family])
    target = output_for(parameterization, z0, z, level)
    assert torch.allclose(parameterization.to_z0(target, z, level), z0, atol=1e-9)
    denoiser = parameterization.wrap(Answers(target))
    estimate = denoiser(
        z, level, denoiser.encode(Source(torch.ones(4, 1), torch.ones(4, 1))), unconstrained(4), None
    )
    assert torch.allclose(estimate.z0, z0, atol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_targets_are_the_noise_the_velocity_and_the_score(family: str) -> None:
    schedule = FAMILIES[family]
    z0, noise, z, level = noised(schedule)
    assert torch.equal(output_for(PredictZ0(schedule), z0, z, level), z0)
    assert torch.allclose(output_for(PredictNoise(schedule), z0, z, level), noise, atol=1e-9)
    assert torch.allclose(output_for(PredictVelocity(schedule), z0, z, level), noise - z0, atol=1e-9)
    seen = z.clone().requires_grad_()  # the score is the gradient of torch's own log-density
    for row in range(len(TIMES)):
        for place in range(LENGTH):
            at = place if level.alpha.shape[1] > 1 else 0
            alpha, variance = level.alpha[row, at, 0], level.sigma[row, at, 0] ** 2
            gaussian_noise = MultivariateNormal(alpha * z0[row, place], variance * torch.eye(DIM).double())
            gaussian_noise.log_prob(seen[row, place]).backward()
    assert seen.grad is not None
    assert torch.allclose(output_for(PredictScore(schedule), z0, z, level), seen.grad, atol=1e-9)


@pytest.mark.parametrize("family", [family for family in FAMILIES if ("mean", family) != STILL])
def test_the_target_of_the_mean_is_that_of_the_posterior(family: str) -> None:
    schedule = FAMILIES[family]
    z0, _, z, level = noised(schedule)
    before: NoiseLevel = schedule(TIMES - 1 / T, LENGTH)
    mean, _ = posterior(level, before, z, z0)
    assert torch.allclose(output_for(PredictMean(schedule), z0, z, level), mean, atol=1e-9)


@pytest.mark.parametrize("name", PARAMETERIZATIONS)
def test_the_weighed_error_is_that_of_the_output(name: str) -> None:
    schedule = SqrtSchedule(T)
    z0, _, z, level = noised(schedule)
    parameterization = PARAMETERIZATIONS[name](schedule)
    output = torch.randn_like(z0)
    estimate = Estimate(parameterization.to_z0(output, z, level), z0)
    inputs = LossInputs(None, z0, z0, estimate, None, None, level, None)  # type: ignore[arg-type]
    expected = (output - output_for(parameterization, z0, z, level)).square().mean(-1)
    assert torch.allclose(MseLoss(weighting=parameterization.weight).value(inputs), expected)


@pytest.mark.parametrize("name", PARAMETERIZATIONS)
@pytest.mark.parametrize("sampling", [SqrtSchedule(T), Rescaled(SqrtSchedule(T), 0.5)])
def test_an_output_means_the_same_whatever_the_noise_of_generation(name: str, sampling: Schedule) -> None:
    """The network is trained with four times the noise; what it says of z is converted as there."""
    training = Rescaled(SqrtSchedule(T), 4.0)
    _, _, z, level = noised(training)
    parameterization, output = PARAMETERIZATIONS[name](training), torch.randn_like(z)
    denoiser = parameterization.wrap(Answers(output)).for_sampling(sampling)
    encoded = denoiser.encode(Source(torch.ones(4, 1), torch.ones(4, 1)))
    lower: NoiseLevel = sampling(TIMES, LENGTH)
    assert not torch.allclose(lower.sigma, level.sigma)
    estimate = denoiser(z, lower, encoded, unconstrained(4), None)
    assert torch.allclose(estimate.z0, parameterization.to_z0(output, z, level), rtol=1e-9)


@pytest.mark.parametrize("kind", [ResidualNoise, ResidualScore])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_residual_is_what_pure_noise_does_not_say(kind: type[ResidualOutput], family: str) -> None:
    schedule = FAMILIES[family]
    z0, _, z, level = noised(schedule)
    residual, plain = kind(schedule), kind.inner_class(schedule)
    assert kind.min_alpha_bar == kind.inner_class.min_alpha_bar > 0
    rest, of_noise = output_for(residual, z0, z, level), plain.output_per_noise(schedule.final_sigma)
    assert torch.allclose(rest + of_noise * z, output_for(plain, z0, z, level), atol=1e-9)
    assert torch.allclose(residual.to_z0(rest, z, level), z0, atol=1e-9)
    assert torch.equal(residual.weight(level), plain.weight(level))
    sigma = schedule.final_sigma
    end = NoiseLevel(*torch.tensor([[1e-6, sigma, 1.0]], dtype=torch.float64).T[:, None, None])
    noise = sigma * torch.randn(1, LENGTH, DIM, dtype=torch.float64)  # all of z: nothing is left to say
    nothing = output_for(residual, torch.zeros_like(noise), noise, end)
    assert torch.allclose(nothing, torch.zeros_like(nothing), atol=1e-9)


@pytest.mark.parametrize(
    ("schedule", "sigma"),
    [
        (SqrtSchedule(T), 1.0),
        (SignalFloor(SqrtSchedule(T), 0.14), 1.0),  # generation begins with pure noise
        (Rescaled(SignalFloor(SqrtSchedule(T), 0.14), 4.0), 4.0),
        (RectifiedFlow(T, 3.0), 3.0),
        (Edm(T), 10.0),
        (VariancePreserving(Edm(T)), 10 / 101**0.5),
    ],
)
def test_the_last_sigma_is_that_of_the_noise_which_generation_begins_with(
    schedule: Schedule, sigma: float
) -> None:
    assert schedule.final_sigma == pytest.approx(sigma)


def test_the_error_of_epsilon_is_the_snr_times_that_of_z0_by_hand() -> None:
    level = NoiseLevel(torch.tensor([[[0.6]]]), torch.tensor([[[0.8]]]), torch.tensor([[0.5]]))
    z0, noise, self_condition = torch.tensor([[[2.0]]]), torch.tensor([[[-1.0]]]), torch.tensor([[[0.5]]])
    z = 0.6 * z0 + 0.8 * noise  # 0.4
    estimate = (z - 0.8 * self_condition) / 0.6  # 0: the error of z₀ is 2² = 4, that of ε 1.5² = 2.25
    inputs = LossInputs(None, z0, z0, Estimate(estimate, z0), None, None, level, None)  # type: ignore[arg-type]
    assert MseLoss().value(inputs).item() == pytest.approx(4)
    for weighting in (PredictNoise(SqrtSchedule()).weight, lambda level: level.snr):
        assert MseLoss(weighting=weighting).value(inputs).item() == pytest.approx(2.25)
    assert MseLoss(weighting=PredictScore(SqrtSchedule()).weight).value(inputs).item() == pytest.approx(
        2.25 / 0.64
    )


def test_weights_are_the_ratios_of_the_bound() -> None:
    """KL = w_z·‖ẑ₀ − z₀‖² = w_ε·‖ε̂ − ε‖² = w_μ·‖μ̂ − μ‖²."""
    schedule = SqrtSchedule(T)
    level, before = (schedule(times, 1) for times in (TIMES[1:], TIMES[1:] - 1 / T))
    clean = kl_weight_of_z0(level, before)
    assert torch.allclose(PredictNoise(schedule).weight(level), clean / kl_weight_of_noise(level, before))
    assert torch.allclose(PredictMean(schedule).weight(level), clean / kl_weight_of_mean(level, before))


def test_with_z0_nothing_is_wrapped_around_the_network() -> None:
    denoiser = Answers(torch.zeros(1))
    assert PredictZ0(SqrtSchedule()).wrap(denoiser) is denoiser
    assert isinstance(PredictNoise(SqrtSchedule()).wrap(denoiser), ParameterizedDenoiser)


def test_given_positions_are_estimated_as_given() -> None:
    torch.manual_seed(0)
    given = torch.tensor([[True, True, False, False, False, False]])
    constraint = Constraint(torch.randn(1, LENGTH, DIM), given, torch.zeros_like(given))
    level: NoiseLevel = SqrtSchedule(T)(torch.tensor([0.5]), LENGTH)
    denoiser = PredictNoise(SqrtSchedule(T)).wrap(Answers(torch.randn(1, LENGTH, DIM)))
    z = constraint.apply(torch.randn(1, LENGTH, DIM))
    mean = denoiser(z, level, denoiser.encode(Source(given, given)), constraint, None).z0
    assert torch.equal(mean[given], constraint.embeddings[given])
    assert not torch.equal(mean[~given], z[~given])


def test_a_floor_keeps_signal_and_changes_nothing_above_it() -> None:
    schedule, floored = SqrtSchedule(T), SignalFloor(SqrtSchedule(T), 0.01)
    times = torch.linspace(1 / T, 1, T, dtype=torch.float64)
    plain, level = schedule(times, 1), floored(times, 1)
    above = plain.alpha**2 >= 0.01
    assert torch.allclose(level.alpha[above], plain.alpha[above])
    assert torch.allclose(level.sigma[above], plain.sigma[above])
    assert torch.allclose(level.alpha[~above] ** 2, torch.tensor(0.01).double())
    assert torch.allclose(level.alpha**2 + level.sigma**2, torch.ones(()).double())
    assert torch.equal(level.timestep, plain.timestep)
    assert floored.num_timesteps == T
    start = times[above.flatten()].max()  # the time that docs/notebook/diffuseq_variants.md states
    assert SqrtSchedule().alpha_bar(torch.tensor(0.98)).item() == pytest.approx(0.01, abs=2e-4)
    assert start.item() == pytest.approx(0.98)


@pytest.mark.parametrize("name", [name for name in PARAMETERIZATIONS if name != "z0"])
def test_sampling_with_the_true_output_gives_z0(name: str) -> None:
    """From noise alone at the first time; the network always gives the output that leads to z₀."""
    torch.manual_seed(0)
    z0 = torch.randn(2, LENGTH, DIM)
    schedule = SignalFloor(SqrtSchedule(T), PARAMETERIZATIONS[name].min_alpha_bar)
    parameterization = PARAMETERIZATIONS[name](schedule)

    class Knows(Answers):
        def forward(
            self,
            z: Tensor,
            level: NoiseLevel,
            encoded: EncoderOutput,
            constraint: Constraint,
            self_condition: Tensor | None,
        ) -> Estimate:
            target = output_for(parameterization, z0, z, level)
            return Estimate(target, target)

    denoiser = parameterization.wrap(Knows(z0))
    encoded = denoiser.encode(Source(torch.ones(2, 1), torch.ones(2, 1)))
    times = strided_times(10, num_timesteps=T)
    keys, steps = make_key(0, torch.arange(2)), list[SampledStep]()
    sample(ReverseProcess(denoiser, schedule, encoded, unconstrained(2), keys, times), steps.append)
    assert len(steps) == 10
    assert all(torch.allclose(step.estimate.z0, z0, atol=1e-4) for step in steps)


def test_a_parameterized_denoiser_rounds_and_constrains_as_its_network_does() -> None:
    class Reversed(Answers):
        def constrain(self, canvas: Canvas) -> Constraint:
            return Constraint(-self.embedding.embed(canvas.tokens), canvas.given, canvas.padding)

        def logits(self, estimate: Estimate) -> Tensor:
            return -super().logits(estimate)

    inner = Reversed(torch.zeros(1))
    outer = ParameterizedDenoiser(inner, PredictNoise(SqrtSchedule()))
    tokens = torch.tensor([[1, 2]])
    mask = torch.zeros_like(tokens, dtype=torch.bool)
    canvas = Canvas(tokens, mask, mask, ~mask, Source(tokens, mask))
    estimate = Estimate(torch.randn(1, 2, DIM), torch.zeros(1))
    assert torch.equal(outer.logits(estimate), inner.logits(estimate))
    assert torch.equal(outer.constrain(canvas).embeddings, inner.constrain(canvas).embeddings)
