"""GPVAE (Du et al., 2022): a pre-trained encoder-decoder with random encoder states, for diverse texts.

    noise2text train gpvae --set from_folder=t5 --train pairs.jsonl --valid pairs.jsonl --out runs/mine
    noise2text generate runs/mine --input source.txt --latent-noise-scale 2 --noises 10

The folder's network with context variables under a Gaussian-process prior between its encoder and its decoder
(`models/gpvae.py`); cross-entropy of each next token, and KL of the posterior from the prior.
"""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.core.config import option, section
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.baseline_config import GpvaeGenerationConfig, LabelSmoothingOptimConfig
from noise2text.models.gpvae import GpvaeEncoderDecoder, GPVAEModel, GpvaeObjective
from noise2text.models.huggingface import (
    SEQ2SEQ_FAMILY,
    build_network,
    load_pretrained_weights,
    resolve_architecture,
)
from noise2text.models.pretrained_config import Seq2SeqConfig, Seq2SeqModelConfig
from noise2text.models.registry import Recipe
from noise2text.recipes.pretrained import TINY_FROM_SCRATCH, disable_cuda_graphs, shared_arguments

__all__ = [
    "PRESETS",
    "RECIPE",
    "GPVAEConfig",
    "GPVAEModelConfig",
    "GPVAEOptimConfig",
    "build",
    "objective",
]


@dataclass(frozen=True)
class GPVAEModelConfig(Seq2SeqModelConfig):
    """T5's base shape, and the kernel of the released script, where v is the variance per dimension of z."""

    kernel_variance: float = option(1.0, "v, the prior's variance of each dimension of z", above=0)
    kernel_length_scale: float = option(
        1e-3,
        "r, distance over which states are correlated; at 0.001 different states are independent",
        above=0,
    )
    init_std: float = option(1e-4, "standard deviation of the new layers' initial weights", minimum=0)


@dataclass(frozen=True)
class GPVAEOptimConfig(LabelSmoothingOptimConfig):
    """The optimizer, and the losses of the tokens and of the posterior."""

    kl_weight: float = option(1.0, "weight of the KL divergence, which counts once per sentence", minimum=0)


@dataclass(frozen=True)
class GPVAEConfig(Seq2SeqConfig):
    """The released T5 script: a constant learning rate of 10⁻⁴; s = 2 is that of DiffuSeq's table 1."""

    model: GPVAEModelConfig = section(GPVAEModelConfig(), "the pre-trained network and the prior")
    optim: GPVAEOptimConfig = section(
        GPVAEOptimConfig(
            steps=20_000,
            max_tokens=1_024,
            lr=1e-4,
            betas=(0.9, 0.999),
            lr_schedule="constant",
            warmup=0,
            label_smoothing=0.0,
        ),
        "the optimizer and the loss",
    )
    generation: GpvaeGenerationConfig = section(GpvaeGenerationConfig(beam=10), "how the model generates")


_T5 = GPVAEConfig()

PRESETS: dict[str, GPVAEConfig] = {
    "t5-base": _T5,
    "tiny": _T5.replace(
        TINY_FROM_SCRATCH | {"optim.steps": 700},
        encoder_layers=2,
        decoder_layers=2,
        kernel_length_scale=2.0,
        init_std=0.05,
        kl_weight=0.1,
        validate_every=350,
    ),
}


def build(config: GPVAEConfig, tokenizer: Tokenizer) -> GPVAEModel:
    """The untrained model."""
    network = GpvaeEncoderDecoder(
        build_network(SEQ2SEQ_FAMILY, config, tokenizer),
        variance=config.model.kernel_variance,
        scale=config.model.kernel_length_scale,
        init_std=config.model.init_std,
    )
    return disable_cuda_graphs(
        GPVAEModel(
            tokenizer,
            network=network,
            generation_config=config.generation,
            **shared_arguments(config, tokenizer),
        )
    )


def initialize(config: GPVAEConfig, model: GPVAEModel) -> None:
    """Load the weights of the folder into the encoder-decoder; the layers in between stay random."""
    load_pretrained_weights(SEQ2SEQ_FAMILY, config, model.network.inner)


def objective(config: GPVAEConfig, model: GPVAEModel) -> GpvaeObjective:
    """The training objective: each next token, and KL(posterior ‖ prior)."""
    return GpvaeObjective(
        model.network,
        bos=model.tokenizer.bos,
        label_smoothing=config.optim.label_smoothing,
        kl_weight=config.optim.kl_weight,
    )


RECIPE = Recipe(
    name="gpvae",
    paper="GPVAE (Du et al., 2022), in DiffuSeq",
    paper_section="D.2",
    summary="A pre-trained encoder-decoder with a Gaussian-process prior over its encoder states.",
    presets=PRESETS,
    default_preset="t5-base",
    resolve=resolve_architecture(SEQ2SEQ_FAMILY),
    build=build,
    objective=objective,
    initialize=initialize,
)
