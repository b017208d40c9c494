"""How far an embedding table has collapsed: the mean cosine of two different words (Difformer, section 3.1).

    ANI = 1/(V(V−1)) · Σ_i Σ_{j≠i} cos(e_i, e_j)

With unit vectors u_i the double sum is ‖Σ u_i‖² − Σ ‖u_i‖², which takes O(V·d) operations. ANI is 1 for equal
embeddings, about 0 for random ones, and never below −1/(V−1).
"""

from __future__ import annotations

from torch import Tensor

from noise2text.core.errors import Problem

__all__ = ["anisotropy"]


def anisotropy(embeddings: Tensor) -> float:
    """ANI of the table (V, d), in float64; a row of zeros counts as orthogonal to all others."""
    if embeddings.ndim != 2 or len(embeddings) < 2:
        raise Problem(
            f"The embeddings have the shape {tuple(embeddings.shape)}: give a matrix with one row for each "
            "of two or more words."
        )
    table = embeddings.detach().double()
    norms = table.norm(dim=1, keepdim=True)
    units = table / norms.where(norms > 0, 1)  # (V, d)
    pairs = units.sum(0).square().sum() - units.square().sum()
    return pairs.item() / (len(table) * (len(table) - 1))
