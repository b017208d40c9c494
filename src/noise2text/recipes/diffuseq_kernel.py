"""DiffuSeq with the alternate diffusion kernel (Demirag, 2023, 3.2.4): the estimate is a mean of embeddings.

    noise2text train diffuseq-kernel --train pairs.jsonl --valid pairs.jsonl --out runs/mine

DiffuSeq's layout, schedule, times, terms and sampling; only the output of the network differs: a softmax over
the vocabulary times the embeddings. The transformer has the shape of fairseq's transformer_iwslt_de_en, and
batches are small, without accumulation (4.2.2).
"""

from __future__ import annotations

from noise2text.data.tokenizer import Tokenizer
from noise2text.models import DiffusionModel
from noise2text.models.registry import Recipe
from noise2text.nn.vocabulary_head import InterpolatingTransformer
from noise2text.recipes import diffuseq
from noise2text.recipes.diffuseq import DiffuSeqConfig

__all__ = ["PRESETS", "RECIPE", "build"]

PRESETS: dict[str, DiffuSeqConfig] = {
    "covost-de-en": diffuseq.PRESETS["covost-de-en"].replace(
        max_tokens=128 * 63, accumulate=1, model_dim=512, ffn_dim=1024, heads=4, layers=6
    ),
    "tiny": diffuseq.PRESETS["tiny"],
    "small": diffuseq.PRESETS["small"],
}


def build(config: DiffuSeqConfig, tokenizer: Tokenizer) -> DiffusionModel:
    """The untrained model: DiffuSeq's, with another denoiser."""
    diffuseq.require_z0(config)
    diffuseq.require_joint_network(config)
    model = diffuseq.build(config, tokenizer)
    model.denoiser = diffuseq.build_denoiser(config, tokenizer, InterpolatingTransformer)
    return model


RECIPE = Recipe(
    name="diffuseq-kernel",
    paper=diffuseq.DEMIRAG_2023,
    paper_section="3.2.4",
    summary="DiffuSeq whose network predicts probabilities; the estimate is their mean embedding.",
    presets=PRESETS,
    default_preset="covost-de-en",
    build=build,
    objective=diffuseq.objective,
)
