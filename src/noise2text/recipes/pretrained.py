"""Pre-trained models, fine-tuned: a causal one (GPT-2), or an encoder-decoder (T5, BART, Marian).

    noise2text train pretrained-causal --set from_folder=gpt2 --train pairs.jsonl --valid … --out runs/mine
    noise2text train pretrained-seq2seq --set from_folder=t5 --train pairs.jsonl --valid … --out runs/mine

The library's network and weights (`model.from_folder`), over a source between its marker tokens;
cross-entropy of each next token of the target; the searches of `transformer`. `tiny` starts a small model of
the same kind from random weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from noise2text.data.layouts.marked_source import MarkedSourceLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import AutoregressiveModel
from noise2text.models.huggingface import (
    CAUSAL_FAMILY,
    SEQ2SEQ_FAMILY,
    PretrainedFamily,
    build_network,
    load_pretrained_weights,
    resolve_architecture,
)
from noise2text.models.presets import TINY_AUTOREGRESSIVE
from noise2text.models.pretrained_config import CausalConfig, PretrainedConfig, Seq2SeqConfig
from noise2text.models.registry import Recipe
from noise2text.recipes.transformer import objective

__all__ = ["RECIPES", "TINY_FROM_SCRATCH", "disable_cuda_graphs", "shared_arguments"]

A = TypeVar("A", bound=AutoregressiveModel)


def shared_arguments(config: PretrainedConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    """The arguments that all pre-trained models share: the layout and the longest texts."""
    return {
        "layout": MarkedSourceLayout(tokenizer.pad, tokenizer.eos, *tokenizer.surrounding_tokens),
        "max_source": config.data.max_source,
        "max_target": config.data.max_target,
    }


def _build(family: PretrainedFamily) -> Callable[[Any, Tokenizer], AutoregressiveModel]:
    def build(config: PretrainedConfig, tokenizer: Tokenizer) -> AutoregressiveModel:
        return disable_cuda_graphs(
            AutoregressiveModel(
                tokenizer,
                network=build_network(family, config, tokenizer),
                generation_config=config.generation,
                **shared_arguments(config, tokenizer),
            )
        )

    return build


def disable_cuda_graphs(model: A) -> A:
    """The model without CUDA graphs: the library's cache grows with every step, so none can be replayed."""
    model.use_cuda_graphs = False
    return model


def _initialize(family: PretrainedFamily) -> Callable[[Any, Any], None]:
    return lambda config, model: load_pretrained_weights(family, config, model.network)


TINY_FROM_SCRATCH: dict[str, Any] = TINY_AUTOREGRESSIVE | {
    "from_scratch": True,
    "ffn_dim": 512,
    "heads": 4,
    "dropout": 0.0,
    "lr": 1e-3,
    "beam": 1,
}
"""Changes that make a pre-trained recipe train a small model from scratch on two cores."""

_GPT2, _T5 = CausalConfig(), Seq2SeqConfig()
_LARGE: dict[str, Any] = {"model_dim": 1280, "ffn_dim": 5120, "heads": 20, "layers": 36, "lr": 2e-5}

RECIPES = (
    Recipe(
        name="pretrained-causal",
        paper="GPT-2 (Radford et al., 2019), in DiffuSeq",
        paper_section="D.2",
        summary="A causal model of transformers from a local folder, fine-tuned to continue the source.",
        presets={
            "gpt2": _GPT2,
            "gpt2-large": _GPT2.replace(_LARGE),
            "tiny": _GPT2.replace(TINY_FROM_SCRATCH | {"optim.steps": 1_500}, layers=3, validate_every=500),
        },
        default_preset="gpt2",
        resolve=resolve_architecture(CAUSAL_FAMILY),
        build=_build(CAUSAL_FAMILY),
        objective=objective,
        initialize=_initialize(CAUSAL_FAMILY),
    ),
    Recipe(
        name="pretrained-seq2seq",
        paper="T5 (Raffel et al., 2020), BART (Lewis et al., 2020), Marian",
        paper_section="–",
        summary="An encoder-decoder of transformers (T5, BART, Marian) from a local folder, fine-tuned.",
        presets={
            "t5-base": _T5,
            "tiny": _T5.replace(
                TINY_FROM_SCRATCH | {"optim.steps": 1_000},
                encoder_layers=2,
                decoder_layers=2,
                validate_every=250,
            ),
        },
        default_preset="t5-base",
        resolve=resolve_architecture(SEQ2SEQ_FAMILY),
        build=_build(SEQ2SEQ_FAMILY),
        objective=objective,
        initialize=_initialize(SEQ2SEQ_FAMILY),
    ),
)
