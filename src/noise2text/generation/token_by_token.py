"""Autoregressive sampling (thesis on DiffuSeq for translation, algorithm 8): a walk fixes one token.

It needs no training of its own: any diffusion model can be sampled like this, at the price of a walk for each
token of the longest text in the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from noise2text.data.layouts.canvas import Canvas
from noise2text.generation.autoregressive_diffusion import Growing, open_places

__all__ = ["TokenByToken"]


class TokenByToken(Growing):
    """Fixes the first open place of each row; a token that ends a text ends its row."""

    def part(self, canvas: Canvas, tokens: Tensor) -> tuple[Tensor, Tensor]:
        places = open_places(canvas)
        first = places & (places.cumsum(1) == 1)  # (B·C, L)
        ends = torch.tensor(self.layout.ends, dtype=torch.long, device=tokens.device)
        return first, (first & torch.isin(tokens, ends)).any(1)
