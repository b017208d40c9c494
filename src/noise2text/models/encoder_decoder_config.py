"""What recipes of an encoder-decoder have in common: its settings, the network of them, and a tiny shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from noise2text.core.config import option, require_heads, require_least, require_share
from noise2text.nn.denoiser import Denoiser
from noise2text.nn.embeddings import Space
from noise2text.nn.encoder_decoder import EncoderDecoder
from noise2text.training.config import TrainingSettings

__all__ = ["TINY", "EncoderDecoderSettings", "network"]


@dataclass(frozen=True)
class EncoderDecoderSettings(TrainingSettings):
    """The transformer, the embedding and the resolution of time."""

    width: int = option(512, "of the transformer's states")
    embedding: int = option(128, "d, the dimension of the diffusion")
    ffn: int = option(1024, "width of the feed-forward networks")
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
        require_heads(self)
        require_share(self, "dropout", "self_conditioning")
        require_least(self, 1, "embedding", "ffn", "encoder_layers", "decoder_layers")
        require_least(self, 1, "diffusion_steps", "generation_steps", "noise_beam")


TINY: dict[str, Any] = {
    "tokenizer": "characters",
    "max_source": 48,
    "max_target": 15,
    "width": 128,
    "embedding": 16,
    "ffn": 512,
    "heads": 4,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "dropout": 0.0,
    "steps": 1_000,
    "tokens": 2_048,
    "learning_rate": 2e-3,
    "warmup": 200,
    "decay": "cosine",
    "clip": 1.0,
    "ema": 0.0,
    "noise_beam": 1,
    "log_every": 50,
    "validate_every": 500,
    "save_every": 500,
    "validation_sentences": 100,
}
"""What makes a preset train on two cores; recipes change what their diffusion asks for."""


def network(
    settings: Any,
    space: Space,
    *,
    positions: int,
    kind: Callable[..., Denoiser] = EncoderDecoder,
) -> Denoiser:
    """The untrained denoiser of these settings, for targets of so many positions."""
    return kind(
        space,
        width=settings.width,
        ffn=settings.ffn,
        heads=settings.heads,
        encoder_layers=settings.encoder_layers,
        decoder_layers=settings.decoder_layers,
        dropout=settings.dropout,
        source_positions=settings.max_source,
        target_positions=positions,
    )
