"""What a step of the chain is compared with: q(z_s | z_t, z₀), and other forms of the divergence of a step.

The formulas are in the header of `diffusion/variational_bound.py`, which computes with w_z only.
"""

from __future__ import annotations

from torch import Tensor

from noise2text.nn.denoiser import NoiseLevel


def posterior(now: NoiseLevel, then: NoiseLevel, z_t: Tensor, z0: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the variance of z at the level `then`, given z_t at the noisier level `now`, and z₀."""
    rho = now.snr / then.snr
    mean = rho.sqrt() * then.sigma / now.sigma * z_t + then.alpha * (1 - rho) * z0
    return mean, then.sigma**2 * (1 - rho)


def kl_weight_of_mean(now: NoiseLevel, then: NoiseLevel) -> Tensor:
    """w_μ, the factor of ‖μ̂ − μ‖² in the divergence of a step."""
    return 1 / (2 * then.sigma**2 * (1 - now.snr / then.snr))


def kl_weight_of_noise(now: NoiseLevel, then: NoiseLevel) -> Tensor:
    """w_ε, the factor of ‖ε̂ − ε‖² in the divergence of a step."""
    return (then.snr / now.snr - 1) / 2
