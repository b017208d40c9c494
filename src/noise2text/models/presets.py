"""Changes that several presets share."""

from __future__ import annotations

from typing import Any

__all__ = ["TINY"]

TINY: dict[str, Any] = {
    "tokenizer": "characters",
    "max_source": 48,
    "max_target": 15,
    "model_dim": 128,
    "embedding_dim": 16,
    "ffn_dim": 512,
    "heads": 4,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "dropout": 0.0,
    "optim.steps": 1_000,
    "max_tokens": 2_048,
    "lr": 2e-3,
    "warmup": 200,
    "lr_schedule": "cosine",
    "clip_norm": 1.0,
    "ema_decay": 0.0,
    "noise_beam": 1,
    "log_every": 50,
    "validate_every": 500,
    "save_every": 500,
    "validation_sentences": 100,
}
"""Changes that make an encoder-decoder recipe train on dates in minutes on two cores."""
