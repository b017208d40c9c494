"""A small classifier of noisy text: C(z_t) is a probability of each class, at any level of noise.

    x = LayerNorm(P·z_t + positions + time),    C(z_t) = softmax(classes · mean(transformer(x)))

It reads the text alone: what stands on the canvas before it is left out, so a class does not depend on where
a layout puts the text, nor on the source beside it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from noise2text.nn.attention import visible
from noise2text.nn.layers import EncoderLayer, TimeEmbedding, start

__all__ = ["Classifier"]


class Classifier(nn.Module):
    """Tells the class of a text from its noisy embeddings; `room` is how many positions it reads."""

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        room: int,
        width: int,
        ffn: int,
        heads: int,
        layers: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.room = room
        self.project = nn.Linear(dim, width)
        self.positions = nn.Embedding(room, width)
        self.time = TimeEmbedding(width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(width, ffn, heads, dropout=dropout, activation=nn.GELU) for _ in range(layers)
        )
        self.classes = nn.Linear(width, classes)
        self.apply(start)

    def forward(self, z: Tensor, clock: Tensor, where: Tensor) -> Tensor:
        """Scores of every class (B, K); `where` (B, L) is the text on the canvas z (B, L, D)."""
        order = where.int().argsort(dim=1, descending=True, stable=True)[:, : self.room]  # the text first
        seen = where.gather(1, order)  # (B, N)
        z = z.gather(1, order[..., None].expand(-1, -1, z.shape[-1]))
        clock = clock.expand(where.shape).gather(1, order)
        x = self.project(z) + self.positions.weight[: z.shape[1]] + self.time(clock)
        x, mask = self.dropout(self.norm(x)), visible(~seen, x)
        for layer in self.layers:
            x = layer(x, mask)
        pooled = torch.where(seen[..., None], x, 0).sum(1) / seen.sum(1, keepdim=True)
        return self.classes(pooled)
