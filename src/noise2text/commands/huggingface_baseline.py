"""The baseline of `bench`: Hugging Face's `generate` with a Marian model of the same shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from noise2text.core.errors import Problem
from noise2text.models import Model

__all__ = ["build_marian", "make_marian_call"]


def build_marian(
    model: Model, *, model_dim: int, ffn_dim: int, heads: int, layers: int, length: int, dtype: torch.dtype
) -> Any:
    """A Marian model of this shape, with random weights and the model's vocabulary size."""
    try:
        from transformers import MarianConfig, MarianMTModel
    except ImportError as error:
        raise Problem("--peer needs transformers: pip install 'noise2text[pretrained]'.") from error
    sides: dict[str, Any] = {"layers": layers, "ffn_dim": ffn_dim, "attention_heads": heads}
    config = MarianConfig(
        vocab_size=len(model.tokenizer),
        d_model=model_dim,
        max_position_embeddings=4 * length,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sides.items()},
    )
    marian: Any = MarianMTModel(config)
    return marian.to(model.device, dtype=dtype).eval()


def make_marian_call(marian: Any, batch: int, *, length: int, beams: int) -> Callable[[], object]:
    """A function that lets Marian translate a batch of `length` tokens into as many tokens."""
    tokens = torch.randint(2, marian.config.vocab_size, (batch, length), device=marian.device)
    generate_arguments: dict[str, Any] = {
        "num_beams": beams,
        "max_new_tokens": length,
        "min_new_tokens": length,
    }
    call = partial(
        marian.generate, tokens, attention_mask=torch.ones_like(tokens), do_sample=False, **generate_arguments
    )
    return torch.inference_mode()(call)
