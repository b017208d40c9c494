"""The section `model` of a recipe's config: the shape of the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from noise2text.core.config import Config, option
from noise2text.core.errors import Problem
from noise2text.nn.denoiser import Denoiser
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.encoder_decoder import EncoderDecoder
from noise2text.nn.layers import LayerShape

__all__ = [
    "EncoderDecoderConfig",
    "EncoderDecoderFromTeacherConfig",
    "JointTransformerConfig",
    "build_encoder_decoder",
    "require_divisible_heads",
]


def require_divisible_heads(config: Any) -> None:
    """Refuse a model dimension that is odd or not a multiple of the number of heads."""
    if config.model_dim % config.heads or config.model_dim % 2:
        wrong = f"{config.model_dim} of {config.heads}"
        raise Problem(f"The setting model_dim must be even and a multiple of heads, not {wrong}.")


@dataclass(frozen=True)
class EncoderDecoderConfig(Config):
    """The section `model` of recipes with an encoder for the source and a decoder for the target.

    Its fields are settings; `noise2text config difformer` prints them with their help.

    >>> from noise2text import EncoderDecoderConfig
    >>> EncoderDecoderConfig(model_dim=128, heads=4).replace(encoder_layers=2, decoder_layers=2).ffn_dim
    1024
    """

    model_dim: int = option(512, "d_model, dimension of the transformer's states", minimum=1)
    embedding_dim: int = option(128, "d_emb, dimension of the diffusion", minimum=1)
    ffn_dim: int = option(1024, "d_ffn, inner dimension of the feed-forward networks", minimum=1)
    heads: int = option(4, "attention heads", minimum=1)
    encoder_layers: int = option(6, "layers of the encoder", minimum=1)
    decoder_layers: int = option(6, "layers of the decoder", minimum=1)
    dropout: float = option(0.2, "dropout", minimum=0, maximum=1)

    def __post_init__(self) -> None:
        require_divisible_heads(self)


@dataclass(frozen=True)
class EncoderDecoderFromTeacherConfig(EncoderDecoderConfig):
    """The same, which may start from a trained transformer."""

    from_folder: str = option("", "start from the layers and embeddings of this trained transformer")


@dataclass(frozen=True)
class JointTransformerConfig(Config):
    """The section `model` of recipes with one transformer over source and target.

    Its fields are settings, with DiffuSeq's values as defaults; `noise2text config diffuseq` prints them with
    their help.

    >>> from noise2text import JointTransformerConfig
    >>> JointTransformerConfig(layers=2).model_dim
    768
    """

    model_dim: int = option(768, "dimension of the transformer's states", minimum=1)
    embedding_dim: int = option(128, "d, dimension of the diffusion", minimum=1)
    ffn_dim: int = option(3072, "inner dimension of the feed-forward networks", minimum=1)
    heads: int = option(12, "attention heads", minimum=1)
    layers: int = option(12, "transformer layers", minimum=1)
    dropout: float = option(0.1, "dropout", minimum=0, maximum=1)

    def __post_init__(self) -> None:
        require_divisible_heads(self)


def build_encoder_decoder(
    config: EncoderDecoderConfig,
    embedding: TokenEmbedding,
    *,
    source_positions: int,
    target_positions: int,
    network_class: Callable[..., Denoiser] = EncoderDecoder,
) -> Denoiser:
    """The untrained denoiser of this shape, for sources and targets of this many positions."""
    return network_class(
        embedding,
        LayerShape.from_config(config),
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        source_positions=source_positions,
        target_positions=target_positions,
    )
