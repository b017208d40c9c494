"""GPVAE (Du et al., 2022): a pre-trained encoder-decoder whose encoder states are random, for diverse texts.

    noise2text train gpvae --set from_folder=t5 --train pairs.jsonl --valid pairs.jsonl --out runs/mine
    noise2text generate runs/mine --input source.txt --scalar 2 --noises 10

The folder's network with context variables under a Gaussian-process prior between its encoder and its decoder
(`baselines/gpvae.py`); the surprise at each next token and the divergence of the posterior from the prior.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from noise2text.core.config import option, require_at_least
from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.candidates import Candidates, DecodedStep, Decoder, SourceBatch, Stage
from noise2text.models import AutoregressiveModel
from noise2text.models.baseline_config import GpvaeGenerationConfig
from noise2text.models.gpvae import GpvaeEncoderDecoder, GpvaeObjective, SampledGpvae
from noise2text.models.registry import Recipe
from noise2text.models.transformers_folder import (
    SEQ2SEQ_FAMILY,
    Seq2SeqConfig,
    build_decoder,
    load_pretrained_weights,
    resolve_architecture,
)
from noise2text.nn.autoregressive import AutoregressiveNetwork
from noise2text.recipes.pretrained import TINY, disable_cuda_graphs, shared_arguments

__all__ = ["PRESETS", "RECIPE", "GPVAEModel", "GPVAETrainingConfig", "build", "objective"]

_LATENT = 1  # what the key is for


@dataclass(frozen=True)
class GPVAETrainingConfig(Seq2SeqConfig):
    """The released T5 script: 10⁻⁴, constant; its kernel, with v a dimension of z."""

    kernel_variance: float = option(1.0, "v, the prior's variance of each dimension of z")
    kernel_length_scale: float = option(
        1e-3, "r, how far apart states still vary together; this small, they do not"
    )
    kl_weight: float = option(1.0, "weight of the divergence, once a sentence")
    init_std: float = option(1e-4, "standard deviation of the new layers' first weights")
    latent_noise_scale: float = option(2.0, "s, as the model's default; 2 in DiffuSeq's table 1")
    lr_schedule: str = option(
        "constant", "how the learning rate falls: inverse-sqrt, linear, cosine or constant"
    )
    warmup: int = option(0, "steps over which the learning rate rises")
    max_tokens: int = option(1_024, "padded tokens of the longer side in a batch")
    beam: int = option(10, "hypotheses of the beam search, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 0, "kl_weight", "latent_noise_scale", "init_std")
        if not (self.kernel_variance > 0 and self.kernel_length_scale > 0):
            raise Problem(
                f"The settings kernel_variance and kernel_r must be above 0, not {self.kernel_variance} and "
                f"{self.kernel_length_scale}."
            )


_T5 = GPVAETrainingConfig()

PRESETS: dict[str, GPVAETrainingConfig] = {
    "t5-base": _T5,
    "tiny": dataclasses.replace(
        _T5,
        encoder_layers=2,
        decoder_layers=2,
        steps=700,
        validate_every=350,
        kernel_length_scale=2.0,
        kl_weight=0.1,
        init_std=0.05,
        **TINY,
    ),
}


class GPVAEModel(AutoregressiveModel):
    """An encoder-decoder that reads a source with noise; every noise gives the texts of one search."""

    network: GpvaeEncoderDecoder
    generation_config: GpvaeGenerationConfig

    def build_decoder(self, config: Any, network: AutoregressiveNetwork | None = None) -> Decoder:  # type: ignore[override]
        return GPVAEDecoder(self, config)


@dataclass(frozen=True)
class GPVAEDecoder(Decoder):
    """Searches once for every noise, and gives a sentence's texts of all noises as its candidates."""

    model: GPVAEModel
    config: GpvaeGenerationConfig

    def stages(self, *, seed: int, trace: bool = False) -> list[Stage]:
        return [partial(self._search, seed=seed, trace=trace)]

    def _search(self, batch: SourceBatch, *, seed: int, trace: bool) -> list[Candidates]:
        noises, model = self.config.noises, self.model
        repeated = [row for row in batch.rows for _ in range(noises)]
        indices = make_key(torch.tensor(batch.indices)[:, None], torch.arange(noises)).flatten()  # (B·N,)
        network = SampledGpvae(
            model.network,
            make_key(seed, _LATENT, indices).to(model.device),
            latent_noise_scale=self.config.latent_noise_scale,
        )
        decoder = AutoregressiveModel.build_decoder(model, self.config, network)
        decoded = decoder.decode(SourceBatch(repeated, indices.tolist()), seed=seed, trace=trace)
        return [join_candidates(decoded[at : at + noises]) for at in range(0, len(decoded), noises)]


def join_candidates(decoded: Sequence[Candidates]) -> Candidates:
    """The candidates of several drafts of one sentence; those that are done wait for the others."""
    count = max(len(draft.steps) for draft in decoded)
    steps = []
    for number in range(count):
        now = [draft.steps[min(number, len(draft.steps) - 1)] for draft in decoded]
        noisy, clean = ([row for step in now for row in getattr(step, name)] for name in ("noisy", "clean"))
        steps.append(DecodedStep(1 - number / max(1, count - 1), noisy, clean))
    return Candidates(
        [row for draft in decoded for row in draft.tokens],
        [score for draft in decoded for score in draft.scores],
        steps,
    )


def build(config: GPVAETrainingConfig, tokenizer: Tokenizer) -> GPVAEModel:
    """The untrained system."""
    network = GpvaeEncoderDecoder(
        build_decoder(SEQ2SEQ_FAMILY, config, tokenizer),
        variance=config.kernel_variance,
        scale=config.kernel_length_scale,
        init_std=config.init_std,
    )
    generation_config = GpvaeGenerationConfig(
        beam=config.beam,
        length_penalty=config.length_penalty,
        latent_noise_scale=config.latent_noise_scale,
    )
    return disable_cuda_graphs(
        GPVAEModel(
            tokenizer,
            network=network,
            generation_config=generation_config,
            **shared_arguments(config, tokenizer),
        )
    )


def initialize(config: GPVAETrainingConfig, model: GPVAEModel) -> None:
    """Give the encoder-decoder the weights of the folder; the layers between start small."""
    load_pretrained_weights(SEQ2SEQ_FAMILY, config, model.network.inner)


def objective(config: GPVAETrainingConfig, model: GPVAEModel) -> GpvaeObjective:
    """What the system is trained on: each next token, and the posterior's distance from the prior."""
    return GpvaeObjective(
        model.network,
        bos=model.tokenizer.bos,
        label_smoothing=config.label_smoothing,
        kl_weight=config.kl_weight,
    )


RECIPE = Recipe(
    name="gpvae",
    paper="GPVAE (Du et al., 2022), in DiffuSeq",
    section="D.2",
    summary="A pre-trained encoder-decoder with a Gaussian-process prior over its encoder states.",
    presets=PRESETS,
    default_preset="t5-base",
    resolve=resolve_architecture(SEQ2SEQ_FAMILY),
    build=build,
    objective=objective,
    initialize=initialize,
)
