"""Changes that several presets share; dates are the synthetic task of `noise2text synth`."""

from __future__ import annotations

from typing import Any

__all__ = [
    "DIFFORMER_TABLE_21",
    "SMALL_CANVAS",
    "SMALL_DIFFUSION",
    "TINY_AUTOREGRESSIVE",
    "TINY_DIFFUSION",
    "TINY_ITERATIVE",
]

_WMT = {"ffn_dim": 2048, "heads": 8, "dropout": 0.1, "max_tokens": 65_536, "vocabulary": 32_768}
_PARAPHRASE = _WMT | {"model_dim": 768, "ffn_dim": 3072, "heads": 12}
DIFFORMER_TABLE_21: dict[str, dict[str, Any]] = {
    "wmt14-en-de": _WMT,
    "wmt16-en-ro": _WMT,
    "iwslt14-de-en": {},
    "gigaword": _WMT,
    "qqp": _PARAPHRASE | {"optim.steps": 50_000, "max_tokens": 8_192},
    "wiki-auto": _PARAPHRASE | {"optim.steps": 30_000},
    "quasar-t": _PARAPHRASE | {"optim.steps": 100_000, "lr": 3e-4, "warmup": 5_000},
}
"""Difformer's table 21: what its columns change in the IWSLT14 column, for Difformer and the Transformer."""

TINY_DIFFUSION: dict[str, Any] = {
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
"""Changes that make an encoder-decoder recipe of diffusion train on dates in minutes on two cores."""

TINY_AUTOREGRESSIVE: dict[str, Any] = {
    "tokenizer": "characters",
    "max_source": 64,
    "max_target": 64,
    "model_dim": 128,
    "max_tokens": 2_048,
    "lr_schedule": "cosine",
    "warmup": 100,
    "log_every": 50,
    "save_every": 200,
    "validation_sentences": 100,
}
"""Changes that make an autoregressive recipe train on dates in minutes on two cores."""

TINY_ITERATIVE: dict[str, Any] = {
    "tokenizer": "characters",
    "max_source": 48,
    "max_target": 16,
    "model_dim": 128,
    "ffn_dim": 256,
    "heads": 4,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "dropout": 0.0,
    "lr": 2e-3,
    "lr_schedule": "cosine",
    "warmup": 100,
    "log_every": 50,
    "validation_sentences": 100,
}
"""Changes that make CMLM or the Levenshtein Transformer train on dates in minutes on two cores."""

_SMALL: dict[str, Any] = {
    "tokenizer": "bpe",
    "lowercase": False,
    "model_dim": 256,
    "ffn_dim": 1024,
    "heads": 4,
    "dropout": 0.1,
    "lr_schedule": "cosine",
    "warmup": 300,
    "noise_beam": 10,
    "log_every": 100,
    "validation_sentences": 200,
}

SMALL_DIFFUSION: dict[str, Any] = _SMALL | {
    "vocabulary": 4_000,
    "max_source": 32,
    "max_target": 31,
    "encoder_layers": 4,
    "decoder_layers": 4,
    "max_tokens": 8_192,
    "optim.steps": 2_600,
    "lr": 1e-3,
    "validate_every": 1_300,
    "save_every": 1_300,
}
"""Changes to `tiny` that make an encoder-decoder of diffusion learn from 20,000 pairs of sentences."""

SMALL_CANVAS: dict[str, Any] = _SMALL | {
    "vocabulary": 2_000,
    "max_source": 15,
    "max_target": 14,
    "layers": 4,
    "embedding_dim": 64,
    "noise_factor": 4.0,
    "anchor_weight": 1.0,
    "clamp": False,
    "max_tokens": 3_600,
    "optim.steps": 4_200,
    "lr": 2e-3,
    "ema_decay": 0.999,
    "generation.steps": 20,
    "validate_every": 1_400,
    "save_every": 1_400,
}
"""Changes to `tiny` that make a system of one canvas learn from 20,000 pairs of at most six words."""
