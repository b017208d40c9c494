"""What recipes of an encoder-decoder have in common: its settings, the network of them, and a tiny shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from noise2text.core.config import option, require_at_least, require_divisible_heads, require_fraction
from noise2text.nn.denoiser import Denoiser
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.encoder_decoder import EncoderDecoder
from noise2text.training.config import TrainingConfig

__all__ = ["TINY", "EncoderDecoderConfig", "build_denoiser"]


@dataclass(frozen=True)
class EncoderDecoderConfig(TrainingConfig):
    """The transformer, the embedding and the resolution of time."""

    model_dim: int = option(512, "of the transformer's states")
    embedding_dim: int = option(128, "d, the dimension of the diffusion")
    ffn_dim: int = option(1024, "width of the feed-forward networks")
    heads: int = option(4, "attention heads")
    encoder_layers: int = option(6, "layers that read the source")
    decoder_layers: int = option(6, "layers that denoise the target")
    dropout: float = option(0.2, "dropout")

    diffusion_steps: int = option(2000, "T, the resolution of time in training")
    self_conditioning: float = option(0.5, "share of the steps trained with a guess; 0 is none")
    generation_steps: int = option(20, "the steps of generation, as the model's default")
    noise_beam: int = option(1, "noises a sentence, or a length, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_divisible_heads(self)
        require_fraction(self, "dropout", "self_conditioning")
        require_at_least(self, 1, "embedding_dim", "ffn_dim", "encoder_layers", "decoder_layers")
        require_at_least(self, 1, "diffusion_steps", "generation_steps", "noise_beam")


TINY: dict[str, Any] = {
    "tokenizer": "characters",
    "max_source": 48,
    "max_target": 15,
    "model_dim": 128,
    "embedding_dim": 16,
    "ffn_dim": 512,
    "heads": 4,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "dropout": 0.0,
    "steps": 1_000,
    "max_tokens": 2_048,
    "lr": 2e-3,
    "warmup": 200,
    "lr_schedule": "cosine",
    "clip_norm": 1.0,
    "ema_decay": 0.0,
    "noise_beam": 1,
    "log_every": 50,
    "validate_every": 500,
    "save_every": 500,
    "validation_sentences": 100,
}
"""What makes a preset train on two cores; recipes change what their diffusion asks for."""


def build_denoiser(
    config: Any,
    embedding: TokenEmbedding,
    *,
    positions: int,
    network_class: Callable[..., Denoiser] = EncoderDecoder,
) -> Denoiser:
    """The untrained denoiser of these settings, for targets of so many positions."""
    return network_class(
        embedding,
        model_dim=config.model_dim,
        ffn_dim=config.ffn_dim,
        heads=config.heads,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        dropout=config.dropout,
        source_positions=config.max_source,
        target_positions=positions,
    )
