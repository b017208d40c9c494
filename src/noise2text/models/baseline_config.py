"""Sections of the baselines' configs: their networks, their losses, and how they generate.

A class of generation settings has only what its baseline understands: a model without noise has no sampling
steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.core.config import Config, option
from noise2text.generation.config import AutoregressiveGenerationConfig
from noise2text.generation.config_groups import LengthConfig, PrefixSuffixConfig, TemplateConfig
from noise2text.nn.config import require_divisible_heads
from noise2text.training.config import OptimConfig

__all__ = [
    "CopyGenerationConfig",
    "GpvaeGenerationConfig",
    "LabelSmoothingOptimConfig",
    "LevenshteinGenerationConfig",
    "MaskPredictGenerationConfig",
    "NearestGenerationConfig",
    "TransformerModelConfig",
]


@dataclass(frozen=True)
class TransformerModelConfig(Config):
    """An encoder-decoder whose embeddings have the dimension of its states."""

    model_dim: int = option(512, "d_model, dimension of the states and of the embeddings", minimum=1)
    ffn_dim: int = option(1024, "d_ffn, inner dimension of the feed-forward networks", minimum=1)
    heads: int = option(4, "attention heads", minimum=1)
    encoder_layers: int = option(6, "layers of the encoder", minimum=1)
    decoder_layers: int = option(6, "layers of the decoder", minimum=1)
    dropout: float = option(0.3, "dropout", minimum=0, maximum=1)

    def __post_init__(self) -> None:
        require_divisible_heads(self)


@dataclass(frozen=True)
class LabelSmoothingOptimConfig(OptimConfig):
    """The optimizer and a label-smoothed loss."""

    label_smoothing: float = option(
        0.1, "share of the target's probability that is spread over all tokens", minimum=0, maximum=1
    )


@dataclass(frozen=True)
class MaskPredictGenerationConfig(LengthConfig, TemplateConfig):
    """Mask-predict (Ghazvininejad et al., 2019); the defaults are the paper's."""

    iterations: int = option(
        10, "T, predictions of the least certain tokens; 1 is parallel decoding", minimum=1
    )
    length_beam: int = option(
        5, "ℓ, lengths tried per sentence; the likeliest text of them is taken", minimum=1
    )


@dataclass(frozen=True)
class LevenshteinGenerationConfig(PrefixSuffixConfig):
    """Greedy refinement (Gu et al., 2019); the iterations are those of DiffuSeq's comparison."""

    iterations: int = option(
        9, "rounds of deletion, insertion and filling at most; ends if nothing changes", minimum=1
    )
    suffix: str = option("", "text that every output ends with")
    penalty: float = option(
        0.0, "γ, taken from the log-probability of inserting nothing; makes texts longer", minimum=0
    )


@dataclass(frozen=True)
class CopyGenerationConfig(Config):
    """No settings: the output is the source."""


@dataclass(frozen=True)
class NearestGenerationConfig(Config):
    """The number of neighbours."""

    neighbours: int = option(
        1, "candidates per sentence: the targets of its nearest training sources", minimum=1
    )


@dataclass(frozen=True)
class GpvaeGenerationConfig(AutoregressiveGenerationConfig):
    """Beam search or sampling from randomly drawn context variables (Du et al., 2022)."""

    latent_noise_scale: float = option(
        2.0, "s, factor of the noise of the context variables; 0 is none (DiffuSeq: 1 to 4)", minimum=0
    )
    noises: int = option(
        1, "context variables drawn per sentence; each gives the texts of one search", minimum=1
    )
