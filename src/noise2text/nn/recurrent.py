"""A GRU with attention: a bidirectional encoder (Bahdanau et al., 2015), dot products (Luong et al., 2015).

    h = GRU(E[y]),    c = Σ softmax(h · keysᵀ) · states,    logits = tanh(C·[h ; c]) · Eᵀ

keys = A·states, once a sentence. The attention stands on top of the recurrence and is not fed back into it,
so training goes over a whole target at once. The decoder starts from the mean of the encoder's states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from noise2text.data.layouts.canvas import Source
from noise2text.nn.attention import added
from noise2text.nn.denoiser import Memory
from noise2text.nn.embeddings import Space
from noise2text.nn.incremental_decoder import Writer

__all__ = ["GRU", "BidirectionalEncoder", "Hidden"]


@dataclass(frozen=True)
class Hidden:
    """What the recurrence remembers of each hypothesis."""

    states: Tensor  # (layers, B·K, W)


class BidirectionalEncoder(nn.Module):
    """A layer reads the source in both directions, each from its own end; padding is never read before it."""

    def __init__(self, into: int, width: int, *, layers: int, dropout: float) -> None:
        super().__init__()
        sizes = [into] + [width] * (layers - 1)
        self.forwards = nn.ModuleList(nn.GRU(size, width // 2, batch_first=True) for size in sizes)
        self.backwards = nn.ModuleList(nn.GRU(size, width // 2, batch_first=True) for size in sizes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        """The states (B, S, W)."""
        places = torch.arange(x.shape[1], device=x.device)
        mirrored = (~padding).sum(1, keepdim=True) - 1 - places
        mirror = torch.where(padding, places, mirrored)[..., None]  # (B, S, 1), its own inverse
        for forwards, backwards in zip(self.forwards, self.backwards, strict=True):
            there = forwards(x)[0]
            back = backwards(x.gather(1, mirror.expand_as(x)))[0]
            x = self.dropout(torch.cat([there, back.gather(1, mirror.expand_as(back))], dim=-1))
        return x


class GRU(Writer):
    """A recurrent encoder-decoder that writes from left to right."""

    def __init__(self, space: Space, *, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.space, self.depth = space, layers
        self.encoder = BidirectionalEncoder(space.dim, width, layers=layers, dropout=dropout)
        self.bridge = nn.Linear(width, layers * width)
        self.attend = nn.Linear(width, width, bias=False)
        self.decoder = nn.GRU(
            space.dim, width, num_layers=layers, batch_first=True, dropout=dropout if layers > 1 else 0.0
        )
        self.combine = nn.Linear(2 * width, space.dim)
        self.dropout = nn.Dropout(dropout)

    def read(self, source: Source) -> Memory:
        states = self.encoder(self.dropout(self.space.embed(source.tokens)), source.padding)
        return Memory(states, source.padding, self.attend(states), states)

    def forward(self, tokens: Tensor, memory: Memory) -> Tensor:
        first = self._first(memory)
        x, _ = self.decoder(self.dropout(self.space.embed(tokens)), first.to(self.space.table.dtype))
        return self._scores(x, memory)

    def begin(self, memory: Memory, hypotheses: int, *, length: int) -> Hidden:
        first = self._first(memory).to(self.space.table.dtype)
        return Hidden(first.repeat_interleave(hypotheses, dim=1))

    def step(
        self, tokens: Tensor, position: Tensor, notebook: Hidden, memory: Memory, *, visible: int
    ) -> Tensor:
        x, states = self.decoder(self.space.embed(tokens).view(-1, 1, self.space.dim), notebook.states)
        notebook.states.copy_(states)
        return self._scores(x.view(*tokens.shape, -1), memory)

    def reorder(self, notebook: Hidden, parents: Tensor) -> None:
        first = torch.arange(len(parents), device=parents.device)[:, None] * parents.shape[1]
        notebook.states.copy_(notebook.states.index_select(1, (first + parents).flatten()))

    def _first(self, memory: Memory) -> Tensor:
        """The states (layers, B, W) that the decoder starts from."""
        seen = ~memory.padding[..., None]
        mean = (memory.states * seen).sum(1) / seen.sum(1)
        starts: Sequence[Tensor] = torch.tanh(self.bridge(mean)).chunk(self.depth, dim=-1)
        return torch.stack(list(starts))

    def _scores(self, x: Tensor, memory: Memory) -> Tensor:
        """The scores of every token after each state (B, L, W)."""
        context = scaled_dot_product_attention(
            x.unsqueeze(1),
            memory.keys.unsqueeze(1).to(x.dtype),
            memory.values.unsqueeze(1).to(x.dtype),
            attn_mask=added(memory.padding[:, None, None, :], x),
            scale=1.0,
        )
        both = torch.cat([x, context.squeeze(1)], dim=-1)
        return self.space.logits(self.dropout(torch.tanh(self.combine(both))))
