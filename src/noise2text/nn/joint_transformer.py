"""The encoder-only denoiser of DiffuSeq and Diffusion-LM: BERT's shape over source and target at once.

    x = LayerNorm(up(z_t) + positions + time),    ẑ₀ = down(transformer(x))

up and down are Linear-Tanh-Linear; the layers are post-norm with GELU. The paper leaves these out; they are
those of the released code. The source is on the canvas, so nothing has to be read ahead.
"""

from __future__ import annotations

from torch import Tensor, nn

from noise2text.data.layouts.canvas import Source
from noise2text.nn.denoiser import Denoiser, Estimate, Held, Level, Memory
from noise2text.nn.embeddings import Space
from noise2text.nn.layers import AddNorm, EncoderLayer, Stack, TimeEmbedding, start

__all__ = ["JointTransformer"]


class JointTransformer(Denoiser):
    """A denoiser in which every position of the canvas looks at every other; it takes no guess."""

    def __init__(
        self,
        space: Space,
        *,
        width: int,
        ffn: int,
        heads: int,
        layers: int,
        dropout: float,
        positions: int,
        full: bool = False,
    ) -> None:
        """`full`: nothing on its canvases is ever padding, whatever their masks say."""
        super().__init__()
        self.space = space
        self.up = _bent(space.dim, width, width)
        self.positions = nn.Embedding(positions, width)
        self.time = TimeEmbedding(width)
        self.norm = AddNorm(width, dropout=0.0)
        self.dropout = nn.Dropout(dropout)
        self.layers = Stack(
            EncoderLayer(width, ffn, heads, dropout=dropout, activation=nn.GELU) for _ in range(layers)
        )
        self.layers.full = full
        self.down: nn.Module = _bent(width, width, space.dim)
        self.apply(start)

    def read(self, source: Source) -> Memory:
        """Nothing but where the sources end."""
        nothing = self.positions.weight.new_empty(len(source.tokens), 0)
        return Memory(nothing, source.padding, nothing, nothing)

    def timer(self) -> nn.Module:
        return self.time

    def forward(self, z: Tensor, level: Level, memory: Memory, held: Held, guess: Tensor | None) -> Estimate:
        z = held.hold(z).to(self.positions.weight.dtype)
        places = self.positions.weight[: z.shape[1]]
        ticks = self.time(level.clock) if level.ticks is None else level.ticks
        x = self.dropout(self.norm(self.up(z), ticks + places))
        mask = self.layers.mask(held.padding, x)
        for layer in self.layers:
            x = layer(x, mask)
        return Estimate(self.down(x).float(), x)


def _bent(into: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(into, hidden), nn.Tanh(), nn.Linear(hidden, out))
