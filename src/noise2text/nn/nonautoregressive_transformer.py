"""The transformer of the iterative baselines: it encodes a source once and reads many drafts of the target.

    x = LayerNorm(P·E[y] + positions),    h = decoder(x, source),    logits = Q·h · Eᵀ

Every position of the draft attends to every other, in both directions. CMLM predicts tokens from the states h
of masked positions, the Levenshtein Transformer has three heads on them.
"""

from __future__ import annotations

from torch import Tensor, nn

from noise2text.data.layouts.base import Source
from noise2text.nn.denoiser import EncoderOutput
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.encoder_decoder import Encoder
from noise2text.nn.layers import DecoderLayer, LayerShape, LayerStack, init_weights

__all__ = ["NonAutoregressiveTransformer"]


class NonAutoregressiveTransformer(nn.Module):
    """Hidden states for every position of a draft, given the source."""

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
        self.key_value_projection = nn.Linear(model_dim, 2 * decoder_layers * model_dim)
        self.input_projection = nn.Linear(embedding.dim, model_dim, bias=False)
        self.position_embedding = nn.Embedding(target_positions, model_dim)
        self.norm = nn.LayerNorm(model_dim)
        self.dropout = nn.Dropout(shape.dropout)
        self.layers = LayerStack(DecoderLayer(shape) for _ in range(decoder_layers))
        self.output_projection = nn.Linear(model_dim, embedding.dim, bias=False)
        self.apply(init_weights)

    def encode(self, source: Source) -> EncoderOutput:
        """The encoded sources."""
        states = self.encoder(source)
        keys_and_values = self.key_value_projection(states)
        return self.layers.encoder_output(states, source.padding, keys_and_values, heads=self.heads)

    def forward(self, tokens: Tensor, padding: Tensor, encoded: EncoderOutput) -> Tensor:
        """The states (B, L, W) of drafts (B, L); the drafts of a sentence share its encoder output."""
        position_vectors = self.position_embedding.weight[: tokens.shape[1]]
        x = self.dropout(self.norm(self.input_projection(self.embedding.embed(tokens)) + position_vectors))
        return self.layers.decode(x, padding, encoded)

    def log_probs(self, states: Tensor, forbidden: Tensor | None = None) -> Tensor:
        """log p of every token at every position (B, L, V), in float32; −∞ for forbidden tokens."""
        logits = self.embedding.logits(self.output_projection(states)).float()
        return (logits if forbidden is None else logits.masked_fill(forbidden, float("-inf"))).log_softmax(-1)
