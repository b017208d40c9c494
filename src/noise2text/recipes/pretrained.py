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

from noise2text.data.layouts.marked_source import MarkedSourceLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.autoregressive import AutoregressiveGenerationConfig
from noise2text.models import AutoregressiveModel
from noise2text.models.registry import Recipe
from noise2text.models.transformers_folder import (
    CAUSAL_FAMILY,
    SEQ2SEQ_FAMILY,
    CausalConfig,
    PretrainedConfig,
    PretrainedFamily,
    Seq2SeqConfig,
    build_decoder,
    load_pretrained_weights,
    resolve_architecture,
)
from noise2text.training.next_token import NextTokenObjective

__all__ = ["RECIPES", "TINY", "disable_cuda_graphs", "objective", "shared_arguments"]

A = TypeVar("A", bound=AutoregressiveModel)


def shared_arguments(config: PretrainedConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    """What the systems of pre-trained models have in common: the layout, and how long texts may be."""
    return {
        "layout": MarkedSourceLayout(tokenizer.pad, tokenizer.eos, *tokenizer.surrounding_tokens),
        "max_source": config.max_source,
        "max_target": config.max_target,
    }


def _build(family: PretrainedFamily) -> Callable[[Any, Tokenizer], AutoregressiveModel]:
    def build(config: PretrainedConfig, tokenizer: Tokenizer) -> AutoregressiveModel:
        generation_config = AutoregressiveGenerationConfig(
            beam=config.beam, length_penalty=config.length_penalty
        )
        decoder = build_decoder(family, config, tokenizer)
        return disable_cuda_graphs(
            AutoregressiveModel(
                tokenizer,
                network=decoder,
                generation_config=generation_config,
                **shared_arguments(config, tokenizer),
            )
        )

    return build


def disable_cuda_graphs(model: A) -> A:
    """The system without CUDA graphs: the library's cache grows with every step, so none can be replayed."""
    model.use_cuda_graphs = False
    return model


def _start(family: PretrainedFamily) -> Callable[[Any, Any], None]:
    return lambda config, model: load_pretrained_weights(family, config, model.network)


def objective(config: PretrainedConfig, model: AutoregressiveModel) -> NextTokenObjective:
    """What the systems are trained on: each next token of the target."""
    return NextTokenObjective(model.network, bos=model.tokenizer.bos, label_smoothing=config.label_smoothing)


TINY: dict[str, Any] = {
    "from_scratch": True,
    "tokenizer": "characters",
    "model_dim": 128,
    "ffn_dim": 512,
    "heads": 4,
    "dropout": 0.0,
    "max_source": 64,
    "max_target": 64,
    "max_tokens": 2_048,
    "lr": 1e-3,
    "warmup": 100,
    "lr_schedule": "cosine",
    "beam": 1,
    "log_every": 50,
    "save_every": 200,
    "validation_sentences": 100,
}
_GPT2, _T5 = CausalConfig(), Seq2SeqConfig()
_LARGE: dict[str, Any] = {"model_dim": 1280, "ffn_dim": 5120, "heads": 20, "layers": 36, "lr": 2e-5}

RECIPES = (
    Recipe(
        name="pretrained-causal",
        paper="GPT-2 (Radford et al., 2019), in DiffuSeq",
        section="D.2",
        summary="A causal model of transformers from a local folder, fine-tuned to go on from the source.",
        presets={
            "gpt2": _GPT2,
            "gpt2-large": dataclasses.replace(_GPT2, **_LARGE),
            "tiny": dataclasses.replace(_GPT2, layers=3, steps=1_500, validate_every=500, **TINY),
        },
        default_preset="gpt2",
        resolve=resolve_architecture(CAUSAL_FAMILY),
        build=_build(CAUSAL_FAMILY),
        objective=objective,
        initialize=_start(CAUSAL_FAMILY),
    ),
    Recipe(
        name="pretrained-seq2seq",
        paper="T5 (Raffel et al., 2020), BART (Lewis et al., 2020), Marian",
        section="–",
        summary="An encoder-decoder of transformers (T5, BART, Marian) from a local folder, fine-tuned.",
        presets={
            "t5-base": _T5,
            "tiny": dataclasses.replace(
                _T5, encoder_layers=2, decoder_layers=2, steps=1_000, validate_every=250, **TINY
            ),
        },
        default_preset="t5-base",
        resolve=resolve_architecture(SEQ2SEQ_FAMILY),
        build=_build(SEQ2SEQ_FAMILY),
        objective=objective,
        initialize=_start(SEQ2SEQ_FAMILY),
    ),
)
