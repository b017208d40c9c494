"""DiffuSeq with the alternate diffusion kernel (the thesis, 3.2.4): the estimate is a mean of embeddings.

    noise2text train diffuseq-kernel --train pairs.jsonl --valid pairs.jsonl --out runs/mine

DiffuSeq's layout, schedule, times, terms and sampling; only the network's head is another: a softmax over the
vocabulary times the embeddings. The transformer has the shape of fairseq's transformer_iwslt_de_en.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from noise2text.core.config import option
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import DiffusionModel
from noise2text.models.registry import Recipe, keep_config
from noise2text.nn.vocabulary_head import InterpolatingTransformer
from noise2text.recipes import diffuseq
from noise2text.recipes.diffuseq import DiffuSeqConfig, objective

__all__ = ["PRESETS", "RECIPE", "KernelConfig", "build"]


@dataclass(frozen=True)
class KernelConfig(DiffuSeqConfig):
    """The thesis, 4.2.2: small batches, no accumulation."""

    vocabulary: int = option(30_000, "how many tokens a learned BPE has")
    lowercase: bool = option(False, "lowercase all text")
    normalise: bool = option(
        True, "spell out umlauts and ß, strip accents, drop brackets (the thesis, 4.1.1)"
    )
    steps: int = option(80_000, "how many updates to train")
    max_tokens: int = option(128 * 63, "padded tokens of the longer side in a batch")
    accumulate: int = option(1, "micro-batches an update; each has `tokens` tokens")
    model_dim: int = option(512, "of the transformer's states")
    ffn_dim: int = option(1024, "width of the feed-forward networks")
    heads: int = option(4, "attention heads")
    layers: int = option(6, "transformer layers")
    noise_beam: int = option(1, "candidates a sentence, as the model's default")


_COVOST = KernelConfig()
_TINY = dataclasses.asdict(diffuseq.PRESETS["tiny"])

PRESETS: dict[str, KernelConfig] = {
    "covost-de-en": _COVOST,
    "tiny": KernelConfig(**_TINY),
}


def build(config: KernelConfig, tokenizer: Tokenizer) -> DiffusionModel:
    """The untrained system: DiffuSeq's, with another denoiser."""
    model = diffuseq.build(config, tokenizer)
    model.denoiser = diffuseq.build_denoiser(config, tokenizer, InterpolatingTransformer)
    return model


RECIPE = Recipe(
    name="diffuseq-kernel",
    paper="Thesis on DiffuSeq for translation",
    section="3.2.4",
    summary="DiffuSeq whose network predicts probabilities; the estimate is their mean embedding.",
    presets=PRESETS,
    default_preset="covost-de-en",
    resolve=keep_config,
    build=build,
    objective=objective,
)
