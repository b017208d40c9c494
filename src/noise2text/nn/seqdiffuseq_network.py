"""SeqDiffuSeq's encoder-decoder, as released: BART's layers between projections with a tanh.

    encoder input   LayerNorm(P·z₀(x) + positions)
    decoder input   LayerNorm(LayerNorm(P′·[z_t ; ẑ₀_previous] + time) + positions)
    estimate        ẑ₀ = Q·(last state)

P, P′ and Q are Linear, Tanh, Linear with biases; the layers have GELU, and the time goes through W → W → W
with SiLU. Dropout follows the LayerNorms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor, nn

from noise2text.nn.denoiser import Denoiser
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.encoder_decoder import EncoderDecoder
from noise2text.nn.layers import LayerShape, TanhProjection, TimeEmbedding, init_weights

__all__ = ["ENCODER_DECODERS", "SeqDiffuSeqEncoderDecoder"]


class SeqDiffuSeqEncoderDecoder(EncoderDecoder):
    """An encoder-decoder whose self-conditioning input is one long vector, not two that are combined."""

    def __init__(self, embedding: TokenEmbedding, shape: LayerShape, **sizes: int) -> None:
        super().__init__(embedding, replace(shape, activation=nn.GELU), **sizes)
        model_dim = shape.model_dim
        del self.combine
        self.encoder.input_projection = TanhProjection(embedding.dim, model_dim, hidden=model_dim)
        self.encoder.norm = nn.LayerNorm(model_dim)
        self.input_projection = TanhProjection(2 * embedding.dim, model_dim, hidden=model_dim)
        self.time_embedding = TimeEmbedding(model_dim, hidden=model_dim, activation=nn.SiLU)
        self.position_norm = nn.LayerNorm(model_dim)
        self.output_projection = TanhProjection(model_dim, embedding.dim, hidden=model_dim)
        self.apply(init_weights)

    def decoder_input(self, both: Tensor, time_embedding: Tensor, position_vectors: Tensor) -> Tensor:
        x = self.dropout(self.norm(self.input_projection(both.flatten(2)), time_embedding))
        states: Tensor = self.dropout(self.position_norm(x + position_vectors))
        return states


ENCODER_DECODERS: dict[str, Callable[..., Denoiser]] = {
    "seqdiffuseq": SeqDiffuSeqEncoderDecoder,
    "difformer": EncoderDecoder,
}
"""By the names of the setting `network`."""
