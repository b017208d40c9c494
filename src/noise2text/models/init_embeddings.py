"""Embeddings of another model to start from (Difformer, C.3): an array (V, d), one row per token.

One common factor gives them a mean square of 1, which the schedules and the noise factor assume; angles and
ratios of distances do not change.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.nn.embeddings import TokenEmbedding

__all__ = ["load_embeddings", "read_embeddings"]


@torch.no_grad()
def load_embeddings(embedding: TokenEmbedding, tokenizer: Tokenizer, path: Path) -> None:
    """Copy the embeddings at the path into `embedding`, scaled to a mean square of 1."""
    table = read_embeddings(path, tokenizer)
    if table.shape != embedding.weight.shape:
        wanted, found = (" × ".join(map(str, shape)) for shape in (embedding.weight.shape, table.shape))
        raise Problem(
            f"The embeddings of {path} are {found}, but this model's {wanted}; "
            f"use the same tokens and set embedding_dim to their dimension."
        )
    size = table.square().mean().sqrt()
    if not (torch.isfinite(size) and size > 0):
        raise Problem(f"The embeddings of {path} are all 0 or not finite; create them again.")
    embedding.weight.copy_(table / (size * embedding.scale))


def read_embeddings(path: Path, tokenizer: Tokenizer) -> Tensor:
    """The embeddings (V, d) in a .npy file, or in the folder of a model with the same tokenizer."""
    if path.is_dir():
        if Tokenizer.load(path / "tokenizer.json").fingerprint != tokenizer.fingerprint:
            raise Problem(
                f"The model in {path} has other tokens than this corpus; train it with the same tokenizer."
            )
        return _read_model_embeddings(path)
    try:
        table = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise Problem(
            f"The embeddings {path} cannot be read; give a model folder or a .npy file of an array."
        ) from error
    if not isinstance(table, np.ndarray) or table.ndim != 2 or table.dtype.kind not in "fiu":
        raise Problem(f"{path} must be a two-dimensional array of numbers, with one row per token.")
    return torch.from_numpy(table.astype(np.float32))


def _read_model_embeddings(folder: Path) -> Tensor:
    """The embeddings of a trained model (on a sphere these are not its weights)."""
    from noise2text.models.folder import load

    model = load(folder, device="cpu", precision="float32")
    embeddings = [part for part in model.modules() if isinstance(part, TokenEmbedding)]
    if not embeddings:
        raise Problem(f"The model in {folder} has no embeddings; give another model, or a .npy file.")
    return embeddings[0].vectors.detach()
