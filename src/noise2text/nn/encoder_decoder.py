"""The encoder-decoder denoiser of SeqDiffuSeq and Difformer.

The encoder reads P·z₀(x) + positions once. The decoder's input is
LayerNorm(FFN[P′·z_t ; P′·ẑ₀_previous] + time + positions), and ẑ₀ = Q·(its last state); P, P′ and Q have
no bias. Difformer's paper leaves these out; they are those of its released code.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from noise2text.data.layouts.canvas import Source
from noise2text.nn.attention import split_heads, visible
from noise2text.nn.denoiser import Denoiser, Estimate, Held, Level, Memory
from noise2text.nn.embeddings import Space
from noise2text.nn.layers import (
    AddNorm,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    Stack,
    TimeEmbedding,
    start,
)

__all__ = ["Encoder", "EncoderDecoder", "remember"]


def remember(
    states: Tensor, padding: Tensor, both: Tensor, *, layers: int, heads: int, together: int = 1
) -> Memory:
    """The memory of encoded sources, given every layer's keys and values side by side (B, S, 2·layers·W).

    So many sources can share a row of keys and values, if the mask keeps them apart (`attention.visible`).
    """
    rows = both.reshape(len(both) // together, -1, both.shape[2])
    split = split_heads(rows, 2 * layers * heads)  # (B, 2·layers·heads, S, ·)
    keys, values = split.unflatten(1, (2, layers, heads)).permute(1, 2, 0, 3, 4, 5)
    return Memory(states, padding, keys, values)


class Encoder(nn.Module):
    """The source's tokens as states."""

    def __init__(
        self, space: Space, *, width: int, ffn: int, heads: int, layers: int, dropout: float, positions: int
    ) -> None:
        super().__init__()
        self.space = space
        self.project: nn.Module = nn.Linear(space.dim, width, bias=False)
        self.positions = nn.Embedding(positions, width)
        self.layers = Stack(EncoderLayer(width, ffn, heads, dropout=dropout) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Source) -> Tensor:
        """The states (B, S, W)."""
        places = self.positions.weight[: source.tokens.shape[1]]
        x = self.dropout(self.project(self.space.embed(source.tokens)) + places)
        mask = self.layers.mask(source.padding, x)
        for layer in self.layers:
            x = layer(x, mask)
        return x


class EncoderDecoder(Denoiser):
    """A denoiser that attends to an encoded source, with self-conditioning."""

    def __init__(
        self,
        space: Space,
        *,
        width: int,
        ffn: int,
        heads: int,
        encoder_layers: int,
        decoder_layers: int,
        dropout: float,
        source_positions: int,
        target_positions: int,
    ) -> None:
        super().__init__()
        self.space, self.heads = space, heads
        shape = {"width": width, "ffn": ffn, "heads": heads, "dropout": dropout}
        self.encoder = Encoder(space, layers=encoder_layers, positions=source_positions, **shape)  # type: ignore[arg-type]
        # One Linear makes the cross-attention keys and values of all layers, once a sentence.
        self.cross = nn.Linear(width, 2 * decoder_layers * width)
        self.project = nn.Linear(space.dim, width, bias=False)
        self.combine = FeedForward(2 * width, width, width, dropout=dropout)
        self.time = TimeEmbedding(width)
        self.positions = nn.Embedding(target_positions, width)
        self.norm = AddNorm(width, dropout=0.0)
        self.dropout = nn.Dropout(dropout)
        self.layers = Stack(DecoderLayer(width, ffn, heads, dropout=dropout) for _ in range(decoder_layers))
        self.out: nn.Module = nn.Linear(width, space.dim, bias=False)
        self.apply(start)

    def read(self, source: Source) -> Memory:
        states = self.encoder(source)
        shape = {"layers": len(self.layers), "heads": self.heads}
        together = self.layers.together(source.padding)
        return remember(states, source.padding, self.cross(states), together=together, **shape)

    def timer(self) -> nn.Module:
        return self.time

    def forward(self, z: Tensor, level: Level, memory: Memory, held: Held, guess: Tensor | None) -> Estimate:
        z = held.hold(z)
        guess = torch.zeros_like(z) if guess is None else guess
        both = self.project(torch.stack([z, guess], dim=2).to(self.positions.weight.dtype))  # (B, L, 2, W)
        places = self.positions.weight[: z.shape[1]]
        ticks = self.time(level.clock) if level.ticks is None else level.ticks
        x = self.dropout(self.norm(self.combine(both.flatten(2)), ticks + places))
        mask = self.layers.mask(held.padding, x)
        source_mask = visible(memory.padding, x, together=memory.together, queries=x.shape[1])
        for layer, keys, values in zip(self.layers, memory.keys, memory.values, strict=True):
            x = layer(x, mask, keys, values, source_mask)
        return Estimate(self.out(x).float(), x)
