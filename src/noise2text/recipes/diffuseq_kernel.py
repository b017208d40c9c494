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
from noise2text.models import Diffusion
from noise2text.models.registry import Recipe, unchanged
from noise2text.nn.vocabulary_head import KernelTransformer
from noise2text.recipes import diffuseq
from noise2text.recipes.diffuseq import DiffuseqSettings, objective

__all__ = ["PRESETS", "RECIPE", "KernelSettings", "build"]


@dataclass(frozen=True)
class KernelSettings(DiffuseqSettings):
    """The thesis, 4.2.2: small batches, no accumulation."""

    vocabulary: int = option(30_000, "how many tokens a learned BPE has")
    lowercase: bool = option(False, "lowercase all text")
    normalise: bool = option(
        True, "spell out umlauts and ß, strip accents, drop brackets (the thesis, 4.1.1)"
    )
    steps: int = option(80_000, "how many updates to train")
    tokens: int = option(128 * 63, "padded tokens of the longer side in a batch")
    accumulate: int = option(1, "micro-batches an update; each has `tokens` tokens")
    width: int = option(512, "of the transformer's states")
    ffn: int = option(1024, "width of the feed-forward networks")
    heads: int = option(4, "attention heads")
    layers: int = option(6, "transformer layers")
    noise_beam: int = option(1, "candidates a sentence, as the model's default")


_COVOST = KernelSettings()
_TINY = dataclasses.asdict(diffuseq.PRESETS["tiny"])

PRESETS: dict[str, KernelSettings] = {
    "covost-de-en": _COVOST,
    "tiny": KernelSettings(**_TINY),
}


def build(settings: KernelSettings, tokenizer: Tokenizer) -> Diffusion:
    """The untrained system: DiffuSeq's, with another denoiser."""
    system = diffuseq.build(settings, tokenizer)
    system.denoiser = diffuseq.network(settings, tokenizer, KernelTransformer)
    return system


RECIPE = Recipe(
    name="diffuseq-kernel",
    paper="Thesis on DiffuSeq for translation",
    section="3.2.4",
    line="DiffuSeq whose network predicts probabilities; the estimate is their mean embedding.",
    presets=PRESETS,
    default="covost-de-en",
    resolve=unchanged,
    build=build,
    objective=objective,
)
