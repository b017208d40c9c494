"""GPVAE (Du et al., 2022): a pre-trained encoder-decoder with random context variables between the two.

A context variable zᵢ with a Gaussian-process prior is added to each state hᵢ of the encoder:

    prior      z ~ GP(m(h), k),      k(hᵢ, hⱼ) = v · exp(−‖hᵢ − hⱼ‖² / 2r²)
    posterior  q(z | h) = N(μ(h), diag σ²(h))
    decoder    p(y | c),             c = h + W (μ + s·σ·ε),   ε ~ N(0, 1)
    loss       −log p(y | c) + KL(q ‖ prior)

m, μ, log σ² and W are linear; the dimensions of z are independent processes with one kernel. Training has
s = 1. In generation the scalar s trades quality for diversity: 0 is the mean of the posterior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Never

import torch
from torch import Tensor, nn

from noise2text.core.errors import Problem
from noise2text.core.random import gaussian_noise, make_key, seed_tensor
from noise2text.data.layouts.base import Canvas, Source
from noise2text.diffusion.losses import LossTerm, TokenLoss
from noise2text.generation.decoder import Decoder, SentenceCandidates, SourceBatch, Stage, TokenTraceStep
from noise2text.models.autoregressive import AutoregressiveModel
from noise2text.models.baseline_config import GpvaeGenerationConfig
from noise2text.nn.autoregressive import AutoregressiveNetwork
from noise2text.nn.denoiser import EncoderOutput
from noise2text.nn.huggingface import EncoderDecoderModel, states_only_output
from noise2text.training.next_token import NextTokenObjective

__all__ = [
    "GPVAEDecoder",
    "GPVAEModel",
    "GpvaeEncoderDecoder",
    "GpvaeObjective",
    "Latents",
    "SampledGpvae",
    "covariance",
    "gaussian_process_kl",
    "join_candidates",
]

_LATENT = 1  # separates the keys of this noise from others of the same seed
JITTER = 1e-4  # relative to the variance, added to the diagonal: equal states need an invertible covariance


def covariance(states: Tensor, padding: Tensor, *, variance: float, scale: float) -> Tensor:
    """The kernel of all pairs of states, (B, S, S), in float32; padding is independent with variance 1.

    The distance of equal states is exactly 0: `scale` may be far below the rounding errors of other methods.
    """
    states = states.float()
    distances = torch.cdist(states, states, compute_mode="donot_use_mm_for_euclid_dist")
    kernel = variance * torch.exp(-0.5 * (distances / scale).square())
    identity = torch.eye(states.shape[1], device=states.device)
    both = ~(padding[:, :, None] | padding[:, None, :])
    return torch.where(both, kernel + JITTER * variance * identity, identity)


def gaussian_process_kl(difference: Tensor, variance: Tensor, prior: Tensor) -> Tensor:
    """KL(N(μ, diag σ²) ‖ N(m, K)) of each dimension, (B, D); difference μ − m and σ² (B, S, D), K (B, S, S).

    ½ [tr(K⁻¹ diag σ²) + (μ − m)ᵀ K⁻¹ (μ − m) − S + log |K| − Σ log σ²]
    """
    cholesky = torch.linalg.cholesky(prior)
    inverse = torch.cholesky_inverse(cholesky)
    trace = (inverse.diagonal(dim1=1, dim2=2)[..., None] * variance).sum(1)
    distance = torch.linalg.solve_triangular(cholesky, difference, upper=False).square().sum(1)
    determinant = 2 * cholesky.diagonal(dim1=1, dim2=2).log().sum(1)
    return 0.5 * (trace + distance - prior.shape[1] + determinant[:, None] - variance.log().sum(1))


@dataclass(frozen=True)
class Latents:
    """The encoder states of the sources, the posterior of z, and the mean of its prior."""

    states: Tensor  # (B, S, W)
    padding: Tensor  # (B, S)
    mean: Tensor  # (B, S, W)
    log_variance: Tensor
    prior_mean: Tensor


class _DecoderWrapper(AutoregressiveNetwork):
    """A network that passes decoding on to the network inside it."""

    inner: AutoregressiveNetwork
    graph_capturable = False

    def forward(self, tokens: Tensor, encoded: EncoderOutput) -> Tensor:
        logits: Tensor = self.inner(tokens, encoded)
        return logits

    def empty_cache(self, encoded: EncoderOutput, hypotheses: int, *, length: int) -> Any:
        return self.inner.empty_cache(encoded, hypotheses, length=length)

    def step(
        self, tokens: Tensor, position: Tensor, cache: Any, encoded: EncoderOutput, *, cache_length: int
    ) -> Tensor:
        return self.inner.step(tokens, position, cache, encoded, cache_length=cache_length)

    def reorder(self, cache: Any, parents: Tensor) -> None:
        self.inner.reorder(cache, parents)


class GpvaeEncoderDecoder(_DecoderWrapper):
    """An encoder-decoder with context variables between the two; `encode` uses their posterior means."""

    inner: EncoderDecoderModel

    def __init__(self, inner: EncoderDecoderModel, *, variance: float, scale: float, init_std: float) -> None:
        """`init_std` is the standard deviation of the initial weights of the new layers."""
        super().__init__()
        self.inner, self.variance, self.scale = inner, variance, scale
        self.mean, self.log_variance, self.prior = (
            nn.Linear(inner.model_dim, inner.model_dim) for _ in range(3)
        )
        self.latent_projection = nn.Linear(inner.model_dim, inner.model_dim, bias=False)
        for layer in (self.mean, self.log_variance, self.prior, self.latent_projection):
            for parameter in layer.parameters():
                nn.init.normal_(parameter, std=init_std)

    def latents(self, source: Source) -> Latents:
        """The distributions of the context variables of each source."""
        states = self.inner.encode(source).states
        return Latents(
            states, source.padding, self.mean(states), self.log_variance(states), self.prior(states)
        )

    def add_latents(
        self, latents: Latents, noise: Tensor | float, *, latent_noise_scale: float = 1.0
    ) -> EncoderOutput:
        """The states plus their context variables, posterior mean + noise · standard deviation."""
        deviation = (0.5 * latents.log_variance).exp()
        z = latents.mean + (latent_noise_scale * noise * deviation).to(latents.mean.dtype)
        return states_only_output(
            latents.states + self.latent_projection(z).to(latents.states.dtype), latents.padding
        )

    def kl_to_prior(self, latents: Latents) -> Tensor:
        """KL(posterior ‖ prior) of each sentence, (B, 1), as the mean over the dimensions of z."""
        with torch.autocast(latents.states.device.type, enabled=False):
            prior = covariance(latents.states, latents.padding, variance=self.variance, scale=self.scale)
            hidden = latents.padding[..., None]
            difference = (latents.mean.float() - latents.prior_mean.float()).masked_fill(hidden, 0.0)
            variance = latents.log_variance.float().exp().masked_fill(hidden, 1.0)
            return gaussian_process_kl(difference, variance, prior).mean(1, keepdim=True)

    def encode(self, source: Source) -> EncoderOutput:
        return self.add_latents(self.latents(source), 0.0)


class SampledGpvae(_DecoderWrapper):
    """A GPVAE whose context variables have the noise of the keys (B,), times a scalar."""

    inner: GpvaeEncoderDecoder

    def __init__(self, inner: GpvaeEncoderDecoder, keys: Tensor, *, latent_noise_scale: float) -> None:
        super().__init__()
        self.inner, self.keys, self.latent_noise_scale = inner, keys, latent_noise_scale

    def encode(self, source: Source) -> EncoderOutput:
        latents = self.inner.latents(source)
        noise = gaussian_noise(self.keys, 0, *latents.mean.shape[1:])
        return self.inner.add_latents(latents, noise, latent_noise_scale=self.latent_noise_scale)


class GpvaeObjective(NextTokenObjective):
    """The loss of GPVAE: −log p of each next token, and KL(posterior ‖ prior) once per sentence."""

    network: GpvaeEncoderDecoder

    def __init__(
        self, network: GpvaeEncoderDecoder, *, bos: int, label_smoothing: float, kl_weight: float
    ) -> None:
        kl = LossTerm("kl", kl_weight, make_mask=_sentences)
        super().__init__(network, bos=bos, label_smoothing=label_smoothing, more_terms=[kl])

    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> Tensor:  # type: ignore[override]
        """The noise of every context variable."""
        return gaussian_noise(keys, 1, canvas.source.tokens.shape[1], self.network.inner.model_dim)

    def forward(self, canvas: Canvas, draws: Tensor) -> dict[str, TokenLoss]:  # type: ignore[override]
        latents = self.network.latents(canvas.source)
        losses = self.compute_losses(canvas, self.network.add_latents(latents, draws))
        return losses | {"kl": TokenLoss(self.network.kl_to_prior(latents), _sentences(canvas))}


def _sentences(canvas: Canvas) -> Tensor:
    """True for each row with a target, (B, 1)."""
    return canvas.scored.any(1, keepdim=True)


class GPVAEModel(AutoregressiveModel):
    """An encoder-decoder with noise in its encoder states; each noise gives the texts of one search."""

    network: GpvaeEncoderDecoder
    generation_config: GpvaeGenerationConfig
    why_no_likelihood = (
        "GPVAE has no likelihood here: the probability of a text is an integral over its latent process. "
        "Use a diffusion model or an autoregressive one."
    )

    def likelihood_bound(self, texts: Sequence[str], targets: Sequence[str], **options: Any) -> Never:
        raise Problem(self.why_no_likelihood)

    def build_decoder(self, config: Any, network: AutoregressiveNetwork | None = None) -> Decoder:  # type: ignore[override]
        return GPVAEDecoder(self, config)


@dataclass(frozen=True)
class GPVAEDecoder(Decoder):
    """Searches once per noise; a sentence's candidates are the texts of all its noises."""

    model: GPVAEModel
    config: GpvaeGenerationConfig

    def stages(self, *, trace: bool = False) -> list[Stage]:
        return [partial(self._search, trace=trace)]

    def _search(self, batch: SourceBatch, *, trace: bool) -> list[SentenceCandidates]:
        noises, model = self.config.noises, self.model
        repeated = [row for row in batch.rows for _ in range(noises)]
        indices = make_key(torch.tensor(batch.indices)[:, None], torch.arange(noises)).flatten()  # (B·N,)
        seeds = [seed for seed in batch.row_seeds for _ in range(noises)]
        network = SampledGpvae(
            model.network,
            make_key(seed_tensor(seeds), _LATENT, indices).to(model.device),
            latent_noise_scale=self.config.latent_noise_scale,
        )
        decoder = AutoregressiveModel.build_decoder(model, self.config, network)
        decoded = decoder.decode(SourceBatch(repeated, indices.tolist(), seeds), trace=trace)
        return [join_candidates(decoded[i : i + noises]) for i in range(0, len(decoded), noises)]


def join_candidates(decoded: Sequence[SentenceCandidates]) -> SentenceCandidates:
    """The candidates of all searches for one sentence; a search that ends early repeats its last step."""
    count = max(len(each.steps) for each in decoded)
    steps = []
    for number in range(count):
        current = [each.steps[min(number, len(each.steps) - 1)] for each in decoded]
        noisy = [row for step in current for row in step.noisy]
        clean = [row for step in current for row in step.clean]
        steps.append(TokenTraceStep(1 - number / max(1, count - 1), noisy, clean))
    return SentenceCandidates(
        [row for each in decoded for row in each.tokens],
        [score for each in decoded for score in each.scores],
        steps,
    )
