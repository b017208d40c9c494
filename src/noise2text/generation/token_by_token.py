"""Autoregressive sampling (thesis on DiffuSeq for translation, algorithm 8): a walk fixes one token.

It needs no training of its own: any diffusion model can be sampled like this, at the price of a walk for each
token of the longest text in the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from noise2text.data.layouts.canvas import Canvas
from noise2text.generation.autoregressive_diffusion import AutoregressiveDiffusionDecoder, open_positions

__all__ = ["TokenByTokenDecoder"]


class TokenByTokenDecoder(AutoregressiveDiffusionDecoder):
    """Fixes the first open place of each row; a token that ends a text ends its row."""

    def select_new_tokens(self, canvas: Canvas, tokens: Tensor) -> tuple[Tensor, Tensor]:
        positions = open_positions(canvas)
        first = positions & (positions.cumsum(1) == 1)  # (B·C, L)
        ends = torch.tensor(self.layout.end_tokens, dtype=torch.long, device=tokens.device)
        return first, (first & torch.isin(tokens, ends)).any(1)
