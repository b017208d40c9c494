"""DiffuSeq's network with separate, frozen source embeddings (the ablation of DiffuSeq, table 3).

A table that is not trained embeds the source, and the learned one embeds the target. In the paper's main
model one learned table embeds both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from noise2text.data.layouts.base import Canvas
from noise2text.nn.denoiser import Constraint
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.joint_transformer import JointTransformer
from noise2text.nn.layers import LayerShape

__all__ = ["SeparateSourceTransformer"]


class SeparateSourceTransformer(JointTransformer):
    """A joint transformer whose sources have their own embeddings, which are not trained."""

    def __init__(self, embedding: TokenEmbedding, shape: LayerShape, **sizes: Any) -> None:
        super().__init__(embedding, shape, **sizes)
        self.source_embedding = TokenEmbedding(len(embedding.weight), embedding.dim, scale=embedding.scale)
        self.source_embedding.weight.requires_grad_(False)

    def constrain(self, canvas: Canvas) -> Constraint:
        constraint = super().constrain(canvas)
        own = self.source_embedding.embed(canvas.tokens)
        return Constraint(
            torch.where(_source_positions(canvas)[..., None], own, constraint.embeddings),
            constraint.given,
            constraint.padding,
        )


def _source_positions(canvas: Canvas) -> Tensor:
    """The positions (B, L) of begin, source and separator; given words of the target are not among them."""
    ends = (~canvas.source.padding).sum(1) + 1
    ends = ends.repeat_interleave(len(canvas.tokens) // len(ends))
    return torch.arange(canvas.tokens.shape[1], device=ends.device) <= ends[:, None]
