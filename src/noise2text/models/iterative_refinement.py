"""Models that refine drafts of the target in parallel: what CMLM and the Levenshtein Transformer share."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from noise2text.data.layouts.split import SplitLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.selection import BestScore, Selector
from noise2text.models.base import Model, make_forbidden_mask
from noise2text.models.baseline_config import TransformerModelConfig
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.layers import LayerShape
from noise2text.nn.nonautoregressive_transformer import NonAutoregressiveTransformer

__all__ = ["IterativeRefinementModel", "build_nonautoregressive_transformer"]


class IterativeRefinementModel(Model):
    """A model that refines drafts of the target; the selected text is the likeliest."""

    layout: SplitLayout
    forbidden: Tensor  # (V,), True for the tokens that are never generated
    why_no_likelihood = (
        "This model has no likelihood: it refines drafts step by step, and the probability of a text over "
        "all drafts has no known bound. Use a diffusion model or an autoregressive one."
    )

    def __init__(self, config: Any, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer, self.layout = tokenizer, SplitLayout(tokenizer.pad)
        self.max_source, self.max_target = config.data.max_source, config.data.max_target
        self.generation_config = config.generation
        self.register_buffer("forbidden", make_forbidden_mask(tokenizer), persistent=False)

    def build_selector(self, generation_config: Any) -> Selector:
        return BestScore()


def build_nonautoregressive_transformer(
    config: TransformerModelConfig, tokenizer: Tokenizer, *, source_positions: int, target_positions: int
) -> NonAutoregressiveTransformer:
    """The untrained network of this shape, for sources and targets of these maximal lengths."""
    return NonAutoregressiveTransformer(
        TokenEmbedding(len(tokenizer), config.model_dim),
        LayerShape.from_config(config),
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        source_positions=source_positions,
        target_positions=target_positions,
    )
