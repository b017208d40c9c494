"""Noise is Gaussian, depends on its key alone, and is the same whatever surrounds it."""

import numpy as np
import pytest
import torch
from scipy import stats

from noise2text.core.random import (
    KeyPurpose,
    RowKeyPurpose,
    SamplingKeyPurpose,
    _fold,
    gaussian_noise,
    make_key,
    uniform,
)


def test_noise_is_standard_normal() -> None:
    noise = gaussian_noise(make_key(1, torch.arange(64)), 3, 32, 64).flatten().double().numpy()
    assert stats.kstest(noise, "norm").pvalue > 0.01
    assert abs(noise.mean()) < 0.01
    assert abs(noise.std() - 1) < 0.01


def test_neighboring_channels_positions_and_steps_are_uncorrelated() -> None:
    keys = make_key(5, torch.arange(100))
    here = gaussian_noise(keys, 0, 20, 32)
    others = {
        "channel": (here[..., :-1], here[..., 1:]),
        "position": (here[:, :-1], here[:, 1:]),
        "row": (here[:-1], here[1:]),
        "step": (here, gaussian_noise(keys, 1, 20, 32)),
        "seed": (here, gaussian_noise(make_key(6, torch.arange(100)), 0, 20, 32)),
    }
    for name, (a, b) in others.items():
        correlation = np.corrcoef(a.flatten().numpy(), b.flatten().numpy())[0, 1]
        assert abs(correlation) < 0.02, name


def test_uniform_is_uniform() -> None:
    numbers = uniform(make_key(9, torch.arange(20_000))).numpy()
    assert stats.kstest(numbers, "uniform").pvalue > 0.01
    assert numbers.min() >= 0
    assert numbers.max() < 1


def test_noise_does_not_depend_on_the_batch_or_the_length() -> None:
    keys = make_key(2, torch.arange(7))
    whole = gaussian_noise(keys, 4, 12, 6)
    assert torch.equal(gaussian_noise(keys[3:5], 4, 5, 6), whole[3:5, :5])


@pytest.mark.parametrize("dim", [1, 5, 16])
def test_any_dimension_works(dim: int) -> None:
    assert gaussian_noise(make_key(0, torch.arange(2)), 0, 3, dim).shape == (2, 3, dim)


def test_a_step_may_be_a_tensor() -> None:
    keys = make_key(0, torch.arange(3))
    assert torch.equal(gaussian_noise(keys, torch.tensor(7), 4, 4), gaussian_noise(keys, 7, 4, 4))


def test_keys_tell_their_parts_apart() -> None:
    grid = make_key(0, torch.arange(50)[:, None, None], torch.arange(-20, 20)[:, None], torch.arange(5))
    assert len(grid.unique()) == 50 * 40 * 5
    assert int(make_key(1, 2)) != int(make_key(2, 1))


def test_a_key_is_splitmix64_folded_over_its_parts_on_any_device() -> None:
    """Whole numbers of Python, which never wrap around by themselves, are the judge."""
    parts = [(0, 0, 0), (7, -1, 3), (2**63 - 1, -(2**63), 5), (2**70 + 11, 12, -4)]
    for seed, place, offset in parts:
        wanted = 0
        for part in (seed, place, offset):
            wanted = splitmix64(wanted ^ splitmix64(part))
        there = [torch.tensor(n if -(2**63) <= n < 2**63 else n % 2**64) for n in (seed, place, offset)]
        keys = make_key(seed, torch.tensor([place]), offset), _fold(torch.zeros((), dtype=torch.long), there)
        assert [int(each) % 2**64 for each in keys] == [wanted] * 2


def splitmix64(state: int) -> int:
    """The generator's next number, after Steele et al. (2014)."""
    z = (state + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z % 2**64 >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def test_keys_and_noise_stay_on_their_device() -> None:
    keys = make_key(1, torch.arange(3, device="meta"), 2)
    assert keys.device.type == "meta"
    assert uniform(make_key(keys, 0)).device.type == "meta"
    assert gaussian_noise(keys, 1, 4, 4).device.type == "meta"


def test_noise_is_what_it_always_was() -> None:
    """A change of the generator would change every generated text."""
    expected = torch.tensor(GOLDEN)
    assert torch.allclose(gaussian_noise(make_key(0, torch.tensor([0])), 0, 1, 4)[0, 0], expected, atol=1e-5)


GOLDEN = [-0.442148, -1.486912, -0.034605, 1.842908]


def test_the_purposes_of_keys_keep_their_numbers() -> None:
    """Other numbers would be other data orders, noise and dropout in every run that is resumed."""
    assert {purpose.name: purpose.value for purpose in KeyPurpose} == {
        "TRAINING": 1,
        "DROPOUT": 2,
        "VALIDATION": 3,
        "LAYOUT": 4,
    }
    assert [purpose.name for purpose in sorted(RowKeyPurpose)] == [
        "TIME",
        "NOISE",
        "Z0_NOISE",
        "SOURCE_DROPOUT",
        "SELF_CONDITION_NOISE",
    ]
    assert [purpose.value for purpose in sorted(RowKeyPurpose)] == [0, 1, 2, 3, 4]
    assert [(purpose.name, purpose.value) for purpose in SamplingKeyPurpose] == [("PRIOR_SAMPLING", 1)]
    keys = make_key(0, torch.arange(2))
    for purpose in (*KeyPurpose, *RowKeyPurpose):
        assert torch.equal(make_key(keys, purpose), make_key(keys, int(purpose)))
        assert torch.equal(gaussian_noise(keys, purpose, 2, 3), gaussian_noise(keys, int(purpose), 2, 3))
