"""The transformer of DiffuSeq's released code, where it differs from `JointTransformer`:

    time = Linear(SiLU(Linear(sinusoids of another dimension))),    layer norms with ε = 10⁻¹²

The rest is BERT's encoder in both. Checkpoints of that code compute the same here.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.joint_transformer import JointTransformer
from noise2text.nn.layers import LayerShape, TimeEmbedding, init_weights

__all__ = ["ReleasedDiffuSeqTransformer"]

TIME_DIM = 128
"""The dimension of the sinusoids (`hidden_t_dim`), the same in all released runs."""
_BERT_EPSILON = 1e-12


class ReleasedDiffuSeqTransformer(JointTransformer):
    """A denoiser that takes the weights of DiffuSeq's released code as they are."""

    def __init__(self, embedding: TokenEmbedding, shape: LayerShape, **sizes: Any) -> None:
        super().__init__(embedding, shape, **sizes)
        self.time_embedding = TimeEmbedding(shape.model_dim, sinusoid_dim=TIME_DIM, activation=nn.SiLU)
        self.time_embedding.apply(init_weights)
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = _BERT_EPSILON
