"""The terms of the variational bound: one KL divergence, written for the mean, z₀ and ε.

With α_t = ᾱ_t/ᾱ_{t−1}, the posterior of DDPM (Demirag, 2023, eq. 2.5b) is

    q(z_{t−1} | z_t, z₀) = N((√α_t·(1 − ᾱ_{t−1})·z_t + √ᾱ_{t−1}·(1 − α_t)·z₀) / (1 − ᾱ_t),  β̃_t·I),
    β̃_t = (1 − α_t)(1 − ᾱ_{t−1}) / (1 − ᾱ_t) ≤ 1 − ᾱ_{t−1}.

A model with the same variance and an estimate of the mean, of z₀ or of ε has the divergence

    KL = w_μ·‖μ̂ − μ‖² = w_z·‖ẑ₀ − z₀‖² = w_ε·‖ε̂ − ε‖²,
    w_μ = 1 / 2β̃_t                                                          (eq. 2.7)
    w_z = ᾱ_{t−1}(1 − α_t) / 2(1 − ᾱ_{t−1})(1 − ᾱ_t) = (SNR_{t−1} − SNR_t)/2    (eq. 2.11c)
    w_ε = (1 − α_t) / 2(1 − ᾱ_{t−1})α_t = w_z / SNR_t                        (eq. 2.12c)

for t ≥ 2. At t = 1, where ᾱ₀ = 1, the posterior is a point and the weights are infinite; the term of the
bound is −log p(z₀ | z₁) instead.
"""

from __future__ import annotations

from torch import Tensor

__all__ = ["gaussian_kl", "mean_weight", "noise_weight", "posterior", "z0_weight"]


def gaussian_kl(mean1: Tensor, variance1: Tensor, mean2: Tensor, variance2: Tensor) -> Tensor:
    """KL(N₁ ‖ N₂) of diagonal Gaussians, summed over the last dimension (Demirag, 2023, eq. 2.6)."""
    ratio = variance1 / variance2
    return ((ratio - 1 - ratio.log() + (mean2 - mean1) ** 2 / variance2) / 2).sum(-1)


def posterior(
    alpha_bar: Tensor, previous_alpha_bar: Tensor, z_t: Tensor, z0: Tensor
) -> tuple[Tensor, Tensor]:
    """The mean and the variance of z_{t−1} given z_t and z₀."""
    alpha, beta = alpha_and_beta(alpha_bar, previous_alpha_bar)
    z_t_factor = alpha.sqrt() * (1 - previous_alpha_bar) / (1 - alpha_bar)
    z0_factor = previous_alpha_bar.sqrt() * beta / (1 - alpha_bar)
    return z_t_factor * z_t + z0_factor * z0, beta * (1 - previous_alpha_bar) / (1 - alpha_bar)


def mean_weight(alpha_bar: Tensor, previous_alpha_bar: Tensor) -> Tensor:
    """w_μ, the factor of ‖μ̂ − μ‖² in the KL divergence of step t."""
    _, beta = alpha_and_beta(alpha_bar, previous_alpha_bar)
    return (1 - alpha_bar) / (2 * (1 - previous_alpha_bar) * beta)


def z0_weight(alpha_bar: Tensor, previous_alpha_bar: Tensor) -> Tensor:
    """w_z, the factor of ‖ẑ₀ − z₀‖² in the KL divergence of step t."""
    return (previous_alpha_bar - alpha_bar) / (2 * (1 - previous_alpha_bar) * (1 - alpha_bar))


def noise_weight(alpha_bar: Tensor, previous_alpha_bar: Tensor) -> Tensor:
    """w_ε, the factor of ‖ε̂ − ε‖² in the KL divergence of step t."""
    alpha, beta = alpha_and_beta(alpha_bar, previous_alpha_bar)
    return beta / (2 * (1 - previous_alpha_bar) * alpha)


def alpha_and_beta(alpha_bar: Tensor, previous_alpha_bar: Tensor) -> tuple[Tensor, Tensor]:
    """α_t and β_t = 1 − α_t, the latter without cancellation."""
    return alpha_bar / previous_alpha_bar, (previous_alpha_bar - alpha_bar) / previous_alpha_bar
