"""DiffuSeq's network with a source that is not learned with the rest (DiffuSeq, table 3).

The source is embedded by another table, which stays as it is; the target by the space that is learned. In the
paper the two are coupled: one table, learned for both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from noise2text.data.layouts.canvas import Canvas
from noise2text.nn.denoiser import Held
from noise2text.nn.embeddings import Space
from noise2text.nn.joint_transformer import JointTransformer

__all__ = ["DecoupledTransformer"]


class DecoupledTransformer(JointTransformer):
    """A joint transformer that is given sources by embeddings of their own, which are not trained."""

    def __init__(self, space: Space, **shape: Any) -> None:
        super().__init__(space, **shape)
        self.foreign = Space(len(space.table), space.dim, scale=space.scale)
        self.foreign.table.requires_grad_(False)

    def hold(self, canvas: Canvas) -> Held:
        held = super().hold(canvas)
        own = self.foreign.embed(canvas.tokens)
        return Held(torch.where(_sources(canvas)[..., None], own, held.given), held.frozen, held.padding)


def _sources(canvas: Canvas) -> Tensor:
    """Where begin, source and separator stand, (B, L); given words of the target are not among them."""
    ends = (~canvas.source.padding).sum(1) + 1
    ends = ends.repeat_interleave(len(canvas.tokens) // len(ends))
    return torch.arange(canvas.tokens.shape[1], device=ends.device) <= ends[:, None]
