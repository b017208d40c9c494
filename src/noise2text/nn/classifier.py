"""A small classifier of noisy text: C(z_t) is the probability of each class, at any noise level.

    x = LayerNorm(P·z_t + positions + time),    C(z_t) = softmax(classes · mean(transformer(x)))

It reads only the target text and skips the rest of the canvas, so a class depends neither on where a layout
puts the text nor on the source beside it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from noise2text.nn.attention import padding_mask
from noise2text.nn.layers import EncoderLayer, LayerShape, TimeEmbedding, init_weights

__all__ = ["Classifier"]


class Classifier(nn.Module):
    """Predicts the class of a text from its noisy embeddings; it reads at most `max_positions` of them."""

    def __init__(
        self,
        dim: int,
        num_classes: int,
        shape: LayerShape,
        *,
        max_positions: int,
        layers: int,
    ) -> None:
        super().__init__()
        shape, model_dim = replace(shape, activation=nn.GELU), shape.model_dim
        self.max_positions = max_positions
        self.input_projection = nn.Linear(dim, model_dim)
        self.position_embedding = nn.Embedding(max_positions, model_dim)
        self.time_embedding = TimeEmbedding(model_dim)
        self.norm = nn.LayerNorm(model_dim)
        self.dropout = nn.Dropout(shape.dropout)
        self.layers = nn.ModuleList(EncoderLayer(shape) for _ in range(layers))
        self.output_projection = nn.Linear(model_dim, num_classes)
        self.apply(init_weights)

    def forward(self, z: Tensor, timestep: Tensor, text_mask: Tensor) -> Tensor:
        """The logits of all classes (B, K), given a canvas z (B, L, D) and where its text is (B, L)."""
        text_first = text_mask.int().argsort(dim=1, descending=True, stable=True)
        order = text_first[:, : self.max_positions]
        is_text = text_mask.gather(1, order)  # (B, N)
        z = z.gather(1, order[..., None].expand(-1, -1, z.shape[-1]))
        timestep = timestep.expand(text_mask.shape).gather(1, order)
        x = (
            self.input_projection(z)
            + self.position_embedding.weight[: z.shape[1]]
            + self.time_embedding(timestep)
        )
        x, mask = self.dropout(self.norm(x)), padding_mask(~is_text, x)
        for layer in self.layers:
            x = layer(x, mask)
        pooled = torch.where(is_text[..., None], x, 0).sum(1) / is_text.sum(1, keepdim=True)
        return self.output_projection(pooled)
