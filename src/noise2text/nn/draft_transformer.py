"""The transformer of the iterative baselines: it reads a source once, drafts of the target often.

    x = LayerNorm(P·E[y] + positions),    h = decoder(x, source),    logits = Q·h · Eᵀ

Every position of the draft looks at every other, in both directions. What becomes of the states h is for
others to say: CMLM rounds those of the masked positions, the Levenshtein Transformer has three heads.
"""

from __future__ import annotations

from torch import Tensor, nn

from noise2text.data.layouts.canvas import Source
from noise2text.nn.attention import visible
from noise2text.nn.denoiser import Memory
from noise2text.nn.embeddings import Space
from noise2text.nn.encoder_decoder import Encoder, remember
from noise2text.nn.layers import DecoderLayer, start

__all__ = ["Editor"]


class Editor(nn.Module):
    """States for every position of a draft, given the source."""

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
        self.cross = nn.Linear(width, 2 * decoder_layers * width)
        self.project = nn.Linear(space.dim, width, bias=False)
        self.positions = nn.Embedding(target_positions, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            DecoderLayer(width, ffn, heads, dropout=dropout) for _ in range(decoder_layers)
        )
        self.out = nn.Linear(width, space.dim, bias=False)
        self.apply(start)

    def read(self, source: Source) -> Memory:
        """What the passes over the draft need of the sources."""
        states = self.encoder(source)
        both = self.cross(states)
        return remember(states, source.padding, both, layers=len(self.layers), heads=self.heads)

    def forward(self, tokens: Tensor, padding: Tensor, memory: Memory) -> Tensor:
        """The states (B, L, W) of a draft (B, L); the drafts of a sentence share its memory."""
        places = self.positions.weight[: tokens.shape[1]]
        x = self.dropout(self.norm(self.project(self.space.embed(tokens)) + places))
        mask, source_mask = visible(padding, x), visible(memory.padding, x)
        for layer, keys, values in zip(self.layers, memory.keys, memory.values, strict=True):
            x = layer(x, mask, keys, values, source_mask)
        return x

    def log_probabilities(self, states: Tensor, forbidden: Tensor | None = None) -> Tensor:
        """log p of every token at every position (B, L, V), in float32; the forbidden have none."""
        logits = self.space.logits(self.out(states)).float()
        return (logits if forbidden is None else logits.masked_fill(forbidden, float("-inf"))).log_softmax(-1)
