"""The encoder-decoder denoiser of Difformer; SeqDiffuSeq's is in `seqdiffuseq_network.py`.

The encoder reads P·z₀(x) + positions once. The decoder's input is

    LayerNorm(FFN[P′·z_t ; P′·ẑ₀_previous] + time + positions),    and ẑ₀ = Q·(its last state).

P, P′ and Q have no bias; dropout follows the FFN and the LayerNorm. Difformer's paper does not give these
details; they follow its released code.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from noise2text.data.layouts.base import Source
from noise2text.nn.denoiser import Constraint, Denoiser, EncoderOutput, Estimate, NoiseLevel
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.layers import (
    AddNorm,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    LayerShape,
    LayerStack,
    TimeEmbedding,
    init_weights,
)

__all__ = ["Encoder", "EncoderDecoder"]


class Encoder(nn.Module):
    """Encodes a source's tokens as hidden states."""

    def __init__(self, embedding: TokenEmbedding, shape: LayerShape, *, layers: int, positions: int) -> None:
        super().__init__()
        self.embedding = embedding
        self.input_projection: nn.Module = nn.Linear(embedding.dim, shape.model_dim, bias=False)
        self.position_embedding = nn.Embedding(positions, shape.model_dim)
        self.norm: nn.Module = nn.Identity()
        self.layers = LayerStack(EncoderLayer(shape) for _ in range(layers))
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, source: Source) -> Tensor:
        """The states (B, S, W)."""
        position_vectors = self.position_embedding.weight[: source.tokens.shape[1]]
        projected = self.input_projection(self.embedding.embed(source.tokens))
        x = self.dropout(self.norm(projected + position_vectors))
        mask = self.layers.self_attention_mask(source.padding, x)
        for layer in self.layers:
            x = layer(x, mask)
        return x


class EncoderDecoder(Denoiser):
    """A denoiser with cross-attention to an encoded source, and self-conditioning."""

    def __init__(
        self,
        embedding: TokenEmbedding,
        shape: LayerShape,
        *,
        encoder_layers: int,
        decoder_layers: int,
        source_positions: int,
        target_positions: int,
    ) -> None:
        super().__init__()
        self.embedding, self.heads, model_dim = embedding, shape.heads, shape.model_dim
        self.encoder = Encoder(embedding, shape, layers=encoder_layers, positions=source_positions)
        # One Linear computes the cross-attention keys and values of all layers, once per sentence.
        self.key_value_projection = nn.Linear(model_dim, 2 * decoder_layers * model_dim)
        self.input_projection: nn.Module = nn.Linear(embedding.dim, model_dim, bias=False)
        self.combine = FeedForward(2 * model_dim, model_dim, model_dim)
        self.time_embedding = TimeEmbedding(model_dim)
        self.position_embedding = nn.Embedding(target_positions, model_dim)
        self.norm = AddNorm(model_dim, dropout=0.0)
        self.dropout = nn.Dropout(shape.dropout)
        self.layers = LayerStack(DecoderLayer(shape) for _ in range(decoder_layers))
        self.output_projection: nn.Module = nn.Linear(model_dim, embedding.dim, bias=False)
        self.apply(init_weights)

    def encode(self, source: Source) -> EncoderOutput:
        states = self.encoder(source)
        keys_and_values = self.key_value_projection(states)
        return self.layers.encoder_output(states, source.padding, keys_and_values, heads=self.heads)

    def time_embedder(self) -> nn.Module:
        return self.time_embedding

    def decoder_input(self, both: Tensor, time_embedding: Tensor, position_vectors: Tensor) -> Tensor:
        """The decoder's first states (B, L, W) for the noisy canvas and its last estimate (B, L, 2, D)."""
        combined = self.dropout(self.combine(self.input_projection(both).flatten(2)))
        states: Tensor = self.dropout(self.norm(combined, time_embedding + position_vectors))
        return states

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        z = constraint.apply(z)
        self_condition = torch.zeros_like(z) if self_condition is None else self_condition
        both = torch.stack([z, self_condition], dim=2).to(self.position_embedding.weight.dtype)
        time_embedding = level.embed_time(self.time_embedding)
        x = self.decoder_input(both, time_embedding, self.position_embedding.weight[: z.shape[1]])
        x = self.layers.decode(x, constraint.padding, encoded)
        return Estimate(self.output_projection(x).float(), x)
