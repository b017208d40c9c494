"""The Transformer of Vaswani et al. (2017), post-norm, with one table for source, target and output.

    x = √W·E[y] + positions,    logits = decoder(x, encoder(source)) · Eᵀ

Positions start as the paper's sinusoids, as large as the embeddings, and are learned from there on.

A step's keys and values go to their own place in the notebook and stay there: that hypothesis b goes on from
hypothesis a is only a row of a mask (`seen`), which says whose keys of the past are b's. So the K hypotheses
of a sentence are K queries over the same K·L keys, and a search that reorders them copies no keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from noise2text.data.layouts.canvas import Source
from noise2text.nn.attention import added, split_heads, visible
from noise2text.nn.denoiser import Memory
from noise2text.nn.embeddings import Scores, Space
from noise2text.nn.encoder_decoder import Encoder, remember
from noise2text.nn.incremental_decoder import Writer
from noise2text.nn.layers import CrossAttention, DecoderLayer, SelfAttention, Stack

__all__ = ["CausalAttention", "Notebook", "Transformer", "sinusoids"]


@dataclass(frozen=True)
class Notebook:
    """The keys and values of the past, and whose they are."""

    past: Tensor  # (layers, B, L, K, 2·W), keys then values
    seen: Tensor  # (B, K, L, K): whether the first hypothesis has the second's key in its past
    own: Tensor  # (1, K, 1, K): each hypothesis has its own


class CausalAttention(SelfAttention):
    """Self-attention that can also take one step at a time."""

    def step(self, x: Tensor, past: Tensor, position: Tensor, seen: Tensor) -> Tensor:
        """One token (B, K, W) of each hypothesis looks at what is seen (B, 1, K, L·K) of the past."""
        width, length = x.shape[-1], seen.shape[-1] // x.shape[1]
        queries, fresh = self.project(x).split([width, 2 * width], dim=-1)
        past.index_copy_(1, position, fresh.unsqueeze(1).to(past.dtype))
        keys, values = past[:, :length].flatten(1, 2).split(width, dim=-1)  # (B, L·K, W)
        answer = scaled_dot_product_attention(
            split_heads(queries, self.heads),
            split_heads(keys, self.heads),
            split_heads(values, self.heads),
            attn_mask=seen,
        )
        return self.merge(answer.transpose(1, 2).flatten(2))


class CausalLayer(DecoderLayer):
    """A decoder's layer whose self-attention can take one step at a time."""

    def __init__(self, width: int, ffn: int, heads: int, *, dropout: float) -> None:
        super().__init__(width, ffn, heads, dropout=dropout)
        self.attention: CausalAttention = CausalAttention(width, heads)

    def step(
        self,
        x: Tensor,
        past: Tensor,
        position: Tensor,
        seen: Tensor,
        keys: Tensor,
        values: Tensor,
        source_mask: Tensor,
    ) -> Tensor:
        """The same as `forward` for one token of each hypothesis; there is no dropout."""
        x = self.attention_norm(x, self.attention.step(x, past, position, seen))
        x = self.cross_norm(x, self.cross(x, keys, values, source_mask))
        return self.feed_norm(x, self.feed(x))


class PlainEncoder(Encoder):
    """The encoder without a projection: its embeddings are as wide as its states."""

    def __init__(
        self, space: Space, *, ffn: int, heads: int, layers: int, dropout: float, positions: int
    ) -> None:
        super().__init__(
            space,
            width=space.dim,
            ffn=ffn,
            heads=heads,
            layers=layers,
            dropout=dropout,
            positions=positions,
        )
        self.project = nn.Identity()


class Transformer(Writer):
    """An encoder-decoder that writes from left to right."""

    def __init__(
        self,
        space: Space,
        *,
        ffn: int,
        heads: int,
        encoder_layers: int,
        decoder_layers: int,
        dropout: float,
        source_positions: int,
        target_positions: int,
    ) -> None:
        super().__init__()
        self.space, self.heads, width = space, heads, space.dim
        self.encoder = PlainEncoder(
            space,
            ffn=ffn,
            heads=heads,
            layers=encoder_layers,
            dropout=dropout,
            positions=source_positions,
        )
        # One Linear makes the cross-attention keys and values of all layers, once a sentence.
        self.cross = nn.Linear(width, 2 * decoder_layers * width)
        self.positions = nn.Embedding(target_positions, width)
        self.dropout = nn.Dropout(dropout)
        self.layers = Stack(CausalLayer(width, ffn, heads, dropout=dropout) for _ in range(decoder_layers))
        self._start()

    @torch.no_grad()
    def _start(self) -> None:
        """Glorot and Bengio's initial weights, smaller by √layers wherever a layer's answer is made.

        What a layer adds is then little beside what it is added to, and the norms leave a gradient about as
        large as it was (Zhang et al., 2019): else six layers hardly learn. Queries, keys and values count as
        one matrix, as in torch and fairseq.
        """
        layers = len(self.layers)
        answer, look = layers**-0.5, 0.5**0.5
        for part in self.modules():
            if isinstance(part, nn.Linear):
                nn.init.zeros_(part.bias)
                nn.init.xavier_uniform_(part.weight, gain=answer)
        for part in self.modules():
            if isinstance(part, SelfAttention):
                _squares(part.project, [look, look, answer])
            if isinstance(part, CrossAttention):
                _squares(part.project, [look])
        _squares(self.cross, [look] * layers + [answer] * layers)
        for positions in (self.encoder.positions, self.positions):
            positions.weight.copy_(sinusoids(positions.num_embeddings, self.space.dim))

    def read(self, source: Source) -> Memory:
        states = self.encoder(source)
        shape = {"layers": len(self.layers), "heads": self.heads}
        together = self.layers.together(source.padding)
        return remember(states, source.padding, self.cross(states), together=together, **shape)

    def forward(self, tokens: Tensor, memory: Memory) -> Tensor:
        return self.scores(tokens, memory).logits()

    def scores(self, tokens: Tensor, memory: Memory) -> Scores:
        length = tokens.shape[1]
        x = self.dropout(self.space.embed(tokens) + self.positions.weight[:length])
        places = torch.arange(self.layers.together(tokens) * length, device=tokens.device)
        past = (places[:, None] >= places) & (places[:, None] // length == places // length)
        mask = added(~past, x)
        source_mask = visible(memory.padding, x, together=memory.together, queries=length)
        for layer, keys, values in zip(self.layers, memory.keys, memory.values, strict=True):
            x = layer(x, mask, keys, values, source_mask)
        return self.space.scores(x)

    def begin(self, memory: Memory, hypotheses: int, *, length: int) -> Notebook:
        sentences, device = len(memory.padding), memory.padding.device
        shape = (len(self.layers), sentences, length, hypotheses, 2 * self.space.dim)
        own = torch.eye(hypotheses, dtype=torch.bool, device=device)
        return Notebook(
            past=torch.zeros(shape, dtype=memory.keys.dtype, device=device),
            seen=torch.zeros(sentences, hypotheses, length, hypotheses, dtype=torch.bool, device=device),
            own=own[None, :, None],
        )

    def step(
        self, tokens: Tensor, position: Tensor, notebook: Notebook, memory: Memory, *, visible: int
    ) -> Tensor:
        seen, own = notebook.seen, notebook.own
        seen.index_copy_(2, position, own.expand(len(seen), -1, -1, -1))
        # Added to the scores, the masks are converted once a step instead of once a layer.
        mask = added(~seen[:, :, :visible].flatten(2).unsqueeze(1), notebook.past)  # (B, 1, K, L·K)
        source_mask = added(memory.padding[:, None, None, :], memory.keys)
        x = self.space.embed(tokens) + self.positions.weight.index_select(0, position)  # (B, K, W)
        for layer, past, keys, values in zip(
            self.layers, notebook.past, memory.keys, memory.values, strict=True
        ):
            x = layer.step(x, past, position, mask, keys, values, source_mask)  # type: ignore[operator]
        return self.space.logits(x)

    def reorder(self, notebook: Notebook, parents: Tensor) -> None:
        index = parents[:, :, None, None].expand_as(notebook.seen)
        notebook.seen.copy_(notebook.seen.gather(1, index))


def _squares(linear: nn.Linear, gains: Sequence[float]) -> None:
    """Start each square of a layer that stands for several with its own gain."""
    for square, gain in zip(linear.weight.chunk(len(gains)), gains, strict=True):
        nn.init.xavier_uniform_(square, gain=gain)


def sinusoids(length: int, width: int) -> Tensor:
    """The positions (length, width) of the paper's section 3.5, all sines before all cosines."""
    frequencies = 10_000 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(length)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)
