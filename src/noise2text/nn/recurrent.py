"""A GRU with attention: a bidirectional encoder (Bahdanau et al., 2015), dot products (Luong et al., 2015).

    h = GRU(E[y]),    c = Σ softmax(h · keysᵀ) · states,    logits = tanh(C·[h ; c]) · Eᵀ

keys = A·states, once per sentence. The attention's output is not fed back into the recurrence, so training
processes a whole target at once. The decoder starts from the mean of the encoder's states.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from noise2text.data.layouts.base import Source
from noise2text.nn.attention import additive_mask
from noise2text.nn.autoregressive import AutoregressiveNetwork
from noise2text.nn.denoiser import EncoderOutput
from noise2text.nn.embeddings import TokenEmbedding

__all__ = ["GRU", "BidirectionalEncoder", "RecurrentState"]


@dataclass(frozen=True)
class RecurrentState:
    """The decoder's hidden state of each hypothesis."""

    states: Tensor  # (layers, B·K, W)


class BidirectionalEncoder(nn.Module):
    """GRU layers that read the source in both directions; padding never precedes the text in either."""

    def __init__(self, in_dim: int, model_dim: int, *, layers: int, dropout: float) -> None:
        super().__init__()
        sizes = [in_dim] + [model_dim] * (layers - 1)
        self.forward_layers = nn.ModuleList(nn.GRU(size, model_dim // 2, batch_first=True) for size in sizes)
        self.backward_layers = nn.ModuleList(nn.GRU(size, model_dim // 2, batch_first=True) for size in sizes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        """The states (B, S, W)."""
        position_indices = torch.arange(x.shape[1], device=x.device)
        reversed_indices = (~padding).sum(1, keepdim=True) - 1 - position_indices
        reversed_text = torch.where(padding, position_indices, reversed_indices)
        reversal = reversed_text[..., None]  # (B, S, 1), its own inverse
        for forward_layers, backward_layers in zip(self.forward_layers, self.backward_layers, strict=True):
            forward_states = forward_layers(x)[0]
            backward_states = backward_layers(x.gather(1, reversal.expand_as(x)))[0]
            x = self.dropout(
                torch.cat(
                    [forward_states, backward_states.gather(1, reversal.expand_as(backward_states))], dim=-1
                )
            )
        return x


class GRU(AutoregressiveNetwork):
    """A recurrent encoder-decoder that generates from left to right."""

    def __init__(self, embedding: TokenEmbedding, *, model_dim: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.embedding, self.num_layers = embedding, layers
        self.encoder = BidirectionalEncoder(embedding.dim, model_dim, layers=layers, dropout=dropout)
        self.bridge = nn.Linear(model_dim, layers * model_dim)
        self.key_projection = nn.Linear(model_dim, model_dim, bias=False)
        self.decoder = nn.GRU(
            embedding.dim,
            model_dim,
            num_layers=layers,
            batch_first=True,
            dropout=dropout if layers > 1 else 0.0,
        )
        self.combine = nn.Linear(2 * model_dim, embedding.dim)
        self.dropout = nn.Dropout(dropout)

    def encode(self, source: Source) -> EncoderOutput:
        states = self.encoder(self.dropout(self.embedding.embed(source.tokens)), source.padding)
        return EncoderOutput(states, source.padding, self.key_projection(states), states)

    def forward(self, tokens: Tensor, encoded: EncoderOutput) -> Tensor:
        initial_state = self._initial_state(encoded)
        x, _ = self.decoder(
            self.dropout(self.embedding.embed(tokens)), initial_state.to(self.embedding.weight.dtype)
        )
        return self._logits(x, encoded)

    def empty_cache(self, encoded: EncoderOutput, hypotheses: int, *, length: int) -> RecurrentState:
        initial_state = self._initial_state(encoded).to(self.embedding.weight.dtype)
        return RecurrentState(initial_state.repeat_interleave(hypotheses, dim=1))

    def step(
        self,
        tokens: Tensor,
        position: Tensor,
        cache: RecurrentState,
        encoded: EncoderOutput,
        *,
        cache_length: int,
    ) -> Tensor:
        x, states = self.decoder(self.embedding.embed(tokens).view(-1, 1, self.embedding.dim), cache.states)
        cache.states.copy_(states)
        return self._logits(x.view(*tokens.shape, -1), encoded)

    def reorder(self, cache: RecurrentState, parents: Tensor) -> None:
        first = torch.arange(len(parents), device=parents.device)[:, None] * parents.shape[1]
        cache.states.copy_(cache.states.index_select(1, (first + parents).flatten()))

    def _initial_state(self, encoded: EncoderOutput) -> Tensor:
        """The states (layers, B, W) that the decoder starts from."""
        states: Tensor = torch.tanh(self.bridge(encoded.mean_state()))  # (B, layers·W)
        return torch.stack(states.chunk(self.num_layers, dim=-1))

    def _logits(self, x: Tensor, encoded: EncoderOutput) -> Tensor:
        """The logits of every token after each state (B, L, W)."""
        context = scaled_dot_product_attention(
            x.unsqueeze(1),
            encoded.keys.unsqueeze(1).to(x.dtype),
            encoded.values.unsqueeze(1).to(x.dtype),
            attn_mask=additive_mask(encoded.padding[:, None, None, :], x),
            scale=1.0,
        )
        both = torch.cat([x, context.squeeze(1)], dim=-1)
        return self.embedding.logits(self.dropout(torch.tanh(self.combine(both))))
