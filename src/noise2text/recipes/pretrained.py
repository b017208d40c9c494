"""Pre-trained models, fine-tuned: a causal one (GPT-2), or an encoder-decoder (T5, BART, Marian).

    noise2text train pretrained-causal --set from_folder=gpt2 --train pairs.jsonl --valid … --out runs/mine
    noise2text train pretrained-seq2seq --set from_folder=t5 --train pairs.jsonl --valid … --out runs/mine

Framed layout + the library's network as a writer (`from_folder`); the surprise at each next token of the
target; the searches of `transformer`. `tiny` starts a small model of the same kind from chance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from noise2text.data.layouts.marked_source import Framed
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.autoregressive import AutoregressiveSettings
from noise2text.models import Autoregressive
from noise2text.models.registry import Recipe
from noise2text.models.transformers_folder import (
    CAUSAL,
    SEQUENCE,
    CausalSettings,
    Family,
    PretrainedSettings,
    SequenceSettings,
    keep_architecture,
    network,
    start_from_folder,
)
from noise2text.training.next_token import NextToken

__all__ = ["RECIPES", "TINY", "framed", "objective", "unrecorded"]

A = TypeVar("A", bound=Autoregressive)


def framed(settings: PretrainedSettings, tokenizer: Tokenizer) -> dict[str, Any]:
    """What the systems of pre-trained models have in common: the layout, and how long texts may be."""
    return {
        "layout": Framed(tokenizer.pad, tokenizer.eos, *tokenizer.frame),
        "max_source": settings.max_source,
        "max_target": settings.max_target,
    }


def _build(family: Family) -> Callable[[Any, Tokenizer], Autoregressive]:
    def build(settings: PretrainedSettings, tokenizer: Tokenizer) -> Autoregressive:
        how = AutoregressiveSettings(beam=settings.beam, length_penalty=settings.length_penalty)
        writer = network(family, settings, tokenizer)
        return unrecorded(Autoregressive(tokenizer, writer=writer, how=how, **framed(settings, tokenizer)))

    return build


def unrecorded(system: A) -> A:
    """The system without CUDA graphs: the library's cache grows with every step, so none can be replayed."""
    system.captures = None
    return system


def _start(family: Family) -> Callable[[Any, Any], None]:
    return lambda settings, system: start_from_folder(family, settings, system.writer)


def objective(settings: PretrainedSettings, system: Autoregressive) -> NextToken:
    """What the systems are trained on: each next token of the target."""
    return NextToken(system.writer, bos=system.tokenizer.bos, label_smoothing=settings.label_smoothing)


TINY: dict[str, Any] = {
    "scratch": True,
    "tokenizer": "characters",
    "width": 128,
    "ffn": 512,
    "heads": 4,
    "dropout": 0.0,
    "max_source": 64,
    "max_target": 64,
    "tokens": 2_048,
    "learning_rate": 1e-3,
    "warmup": 100,
    "decay": "cosine",
    "beam": 1,
    "log_every": 50,
    "save_every": 200,
    "validation_sentences": 100,
}
_GPT2, _T5 = CausalSettings(), SequenceSettings()
_LARGE: dict[str, Any] = {"width": 1280, "ffn": 5120, "heads": 20, "layers": 36, "learning_rate": 2e-5}

RECIPES = (
    Recipe(
        name="pretrained-causal",
        paper="GPT-2 (Radford et al., 2019), in DiffuSeq",
        section="D.2",
        line="A causal model of transformers from a local folder, fine-tuned to go on from the source.",
        presets={
            "gpt2": _GPT2,
            "gpt2-large": dataclasses.replace(_GPT2, **_LARGE),
            "tiny": dataclasses.replace(_GPT2, layers=3, steps=1_500, validate_every=500, **TINY),
        },
        default="gpt2",
        resolve=keep_architecture(CAUSAL),
        build=_build(CAUSAL),
        objective=objective,
        start=_start(CAUSAL),
    ),
    Recipe(
        name="pretrained-seq2seq",
        paper="T5 (Raffel et al., 2020), BART (Lewis et al., 2020), Marian",
        section="–",
        line="An encoder-decoder of transformers (T5, BART, Marian) from a local folder, fine-tuned.",
        presets={
            "t5-base": _T5,
            "tiny": dataclasses.replace(
                _T5, encoder_layers=2, decoder_layers=2, steps=1_000, validate_every=250, **TINY
            ),
        },
        default="t5-base",
        resolve=keep_architecture(SEQUENCE),
        build=_build(SEQUENCE),
        objective=objective,
        start=_start(SEQUENCE),
    ),
)
