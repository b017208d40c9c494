"""The encoder-only denoiser of DiffuSeq and Diffusion-LM: BERT's architecture over source and target.

    x = LayerNorm(up(z_t) + positions + time),    ẑ₀ = down(transformer(x))

up and down are Linear-Tanh-Linear; the layers are post-norm with GELU. The paper does not give these details;
they follow the released code. The source is on the canvas, so there is nothing to encode in advance.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from noise2text.data.layouts.base import Source
from noise2text.nn.denoiser import Constraint, Denoiser, EncoderOutput, Estimate, NoiseLevel
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.layers import (
    AddNorm,
    EncoderLayer,
    LayerShape,
    LayerStack,
    TanhProjection,
    TimeEmbedding,
    init_weights,
)

__all__ = ["JointTransformer"]


class JointTransformer(Denoiser):
    """A denoiser in which every position of the canvas attends to every other; no self-conditioning."""

    def __init__(
        self,
        embedding: TokenEmbedding,
        shape: LayerShape,
        *,
        layers: int,
        positions: int,
        layer_stack: type[LayerStack] = LayerStack,
    ) -> None:
        """`layer_stack` is `UnpaddedLayerStack` for canvases without padding."""
        super().__init__()
        shape, model_dim = replace(shape, activation=nn.GELU), shape.model_dim
        self.embedding = embedding
        self.input_projection = TanhProjection(embedding.dim, model_dim, hidden=model_dim)
        self.position_embedding = nn.Embedding(positions, model_dim)
        self.time_embedding = TimeEmbedding(model_dim)
        self.norm = AddNorm(model_dim, dropout=0.0)
        self.dropout = nn.Dropout(shape.dropout)
        self.layers = layer_stack(EncoderLayer(shape) for _ in range(layers))
        self.output_projection: nn.Module = TanhProjection(model_dim, embedding.dim, hidden=model_dim)
        self.apply(init_weights)

    def encode(self, source: Source) -> EncoderOutput:
        """The sources' padding alone."""
        nothing = self.position_embedding.weight.new_empty(len(source.tokens), 0)
        return EncoderOutput(nothing, source.padding, nothing, nothing)

    def time_embedder(self) -> nn.Module:
        return self.time_embedding

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        z = constraint.apply(z).to(self.position_embedding.weight.dtype)
        position_vectors = self.position_embedding.weight[: z.shape[1]]
        time_embedding = level.embed_time(self.time_embedding)
        x = self.dropout(self.norm(self.input_projection(z), time_embedding + position_vectors))
        mask = self.layers.self_attention_mask(constraint.padding, x)
        for layer in self.layers:
            x = layer(x, mask)
        return Estimate(self.output_projection(x).float(), x)
