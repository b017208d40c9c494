"""The variational bound: −log p(y) of a diffusion model from above, term by term.

The model is the chain that ancestral sampling draws from: z at the times 1 = t_K > … > t₁, then the tokens,

    p(y) = ∫ p(z_{t_K}) Π_k q(z_{t_{k−1}} | z_{t_k}, ẑ₀(z_{t_k})) p(y | ẑ₀(z_{t₁})) dz

with p(z_{t_K}) = N(0, σ²I), and noising the embeddings z₀ of y is its inference model. So −log p(y) is at
most (Demirag, 2023, eq. 2.4)

    prior       KL(q(z_{t_K} | z₀) ‖ p(z_{t_K})) = SNR_{t_K}·‖z₀‖² / 2
    diffusion   Σ_k E KL(q(z_s | z_t, z₀) ‖ q(z_s | z_t, ẑ₀)),    t = t_k, s = t_{k−1}
    rounding    E −log p(y | ẑ₀(z_{t₁})).

With ρ = SNR_t / SNR_s, the posterior of a step (DDPM's, where α² + σ² = 1; Demirag, 2023, eq. 2.5b) is

    q(z_s | z_t, z₀) = N(√ρ·(σ_s/σ_t)·z_t + α_s·(1 − ρ)·z₀,  σ_s²·(1 − ρ)·I),

and one divergence has three forms (eqs. 2.7, 2.11c and 2.12c):

    KL = w_μ·‖μ̂ − μ‖² = w_z·‖ẑ₀ − z₀‖² = w_ε·‖ε̂ − ε‖²,
    w_μ = 1 / 2σ_s²(1 − ρ),    w_z = (SNR_s − SNR_t) / 2,    w_ε = (SNR_s / SNR_t − 1) / 2.

The bound is computed from ẑ₀, so with w_z.

The noise that some papers add between the embedding and z₀ is left out: any inference model gives a bound,
and with that noise it would be looser by about d/2 nats per token.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from noise2text.core.random import gaussian_noise, make_key, uniform
from noise2text.data.layouts.base import Canvas
from noise2text.diffusion.losses import token_nll
from noise2text.diffusion.schedules import Schedule
from noise2text.nn.denoiser import Denoiser, Estimate, NoiseLevel, split_rows

__all__ = ["BoundTerms", "VariationalBound", "kl_weight_of_z0"]


def kl_weight_of_z0(now: NoiseLevel, then: NoiseLevel) -> Tensor:
    """w_z, the factor of ‖ẑ₀ − z₀‖² in the divergence of a step."""
    return (then.snr - now.snr) / 2


@dataclass(frozen=True)
class BoundTerms:
    """The terms of a batch in nats, summed over the open positions of each row."""

    prior: Tensor  # (B,)
    diffusion: Tensor  # (B, S), one column per interval of time, from 1 downwards
    rounding: Tensor  # (B,)

    def total(self) -> Tensor:
        """The bound of each row, (B,)."""
        return self.prior + self.diffusion.sum(1) + self.rounding


@dataclass(frozen=True)
class VariationalBound:
    """An unbiased estimate of the bound, in `samples` + 1 passes of the denoiser.

    The steps are divided into `samples` intervals. One random step of each stands for all of them, so with as
    many samples as steps, none is left out. The network gets no self-conditioning.

    Fields:
        denoiser: returns ẑ₀.
        schedule: the noise levels of the chain.
        times: (K,), the times of the chain, falling from 1.
        samples: the number of intervals.
    """

    denoiser: Denoiser
    schedule: Schedule
    times: Tensor
    samples: int

    @property
    def interval_edges(self) -> Tensor:
        """The number of the first step of each interval, and after them the number of steps, (S + 1,)."""
        steps = len(self.times) - 1
        samples = min(self.samples, steps)
        return torch.arange(samples + 1) * steps // max(1, samples)

    @torch.inference_mode()
    def __call__(self, canvas: Canvas, keys: Tensor) -> BoundTerms:
        """The terms of every row of a canvas of texts; keys: (B,), which decide the noise and the steps."""
        constraint = self.denoiser.constrain(canvas)
        encoded = self.denoiser.encode(canvas.source)
        open_positions = canvas.open_positions
        z0, times = constraint.embeddings, self.times.to(keys.device)

        def noised(time: Tensor, number: int) -> tuple[NoiseLevel, Estimate]:
            level: NoiseLevel = self.schedule(time, z0.shape[1])
            z_t = constraint.apply(level.add_noise(z0, gaussian_noise(keys, number, *z0.shape[1:])))
            return level, self.denoiser(z_t, level, encoded, constraint, None)

        last_level: NoiseLevel = self.schedule(times[:1].expand(len(keys)), z0.shape[1])
        prior = _sum_positions(last_level.snr / 2, z0, open_positions)
        _, estimate = noised(times[-1:].expand(len(keys)), 0)
        nll = _token_nll(self.denoiser, estimate, canvas.tokens)
        rounding = torch.where(open_positions, nll, 0).double().sum(1)
        diffusion = torch.zeros(len(keys), len(self.interval_edges) - 1, device=keys.device).double()
        for number, (first, end) in enumerate(pairwise(self.interval_edges.tolist())):
            u = uniform(make_key(keys, number))
            step = first + torch.floor(u * (end - first)).long()
            now, estimate = noised(times[step], number + 1)
            then = self.schedule(times[step + 1], z0.shape[1])
            error = constraint.apply(estimate.z0) - z0
            divergence = _sum_positions(kl_weight_of_z0(now, then), error, open_positions)
            diffusion[:, number] = (end - first) * divergence
        return BoundTerms(prior, diffusion, rounding)


def _sum_positions(weight: Tensor, vectors: Tensor, mask: Tensor) -> Tensor:
    """Σ weight·‖vector‖² over the positions in the mask, (B,), in float64."""
    values = weight[..., 0] * vectors.double().square().sum(-1)  # (B, L)
    return torch.where(mask, values, 0).sum(1)


def _token_nll(denoiser: Denoiser, estimate: Estimate, tokens: Tensor) -> Tensor:
    """−log p of these tokens (B, L)."""
    parts = split_rows(estimate, tokens, vocabulary=len(denoiser.embedding.weight))
    return torch.cat([token_nll(denoiser.lazy_logits(part), own)[0] for part, own in parts])
