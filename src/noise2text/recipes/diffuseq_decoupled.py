"""DiffuSeq without joint training (table 3): the source has the embeddings of another model, not trained.

    noise2text train diffuseq-decoupled --train pairs.jsonl --valid pairs.jsonl --out runs/mine \\
        --set embeddings_from=runs/transformer

DiffuSeq's layout, schedule, times and sampling; only the embeddings of the target are trained, and all terms
count the target alone. The paper uses the embeddings of a small BERT; any model with the same tokens and
dimension will do, such as a Transformer (`model_dim` is its dimension).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from noise2text.core.config import option, section
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import DiffusionModel
from noise2text.models.init_embeddings import load_embeddings
from noise2text.models.registry import Recipe
from noise2text.nn.separate_source_transformer import SeparateSourceTransformer
from noise2text.recipes import diffuseq
from noise2text.recipes.diffuseq import DiffuSeqConfig, DiffuSeqModelConfig

__all__ = ["PRESETS", "RECIPE", "DecoupledConfig", "DecoupledModelConfig", "build", "initialize"]


@dataclass(frozen=True)
class DecoupledModelConfig(DiffuSeqModelConfig):
    """DiffuSeq's transformer, and the model whose embeddings the source has."""

    embeddings_from: str = option(
        "", "source embeddings: a model folder with the same tokens, or a .npy array (V, d); empty: random"
    )


@dataclass(frozen=True)
class DecoupledConfig(DiffuSeqConfig):
    """DiffuSeq's config, with the embeddings of the source."""

    model: DecoupledModelConfig = section(DecoupledModelConfig(), "the transformer")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.diffusion.align_targets:
            raise Problem(
                "The setting align_targets is not for diffuseq-decoupled, whose source has no padding token."
            )


PRESETS: dict[str, DecoupledConfig] = {
    name: DecoupledConfig().replace(asdict(diffuseq.PRESETS[name]), loss_positions="target")
    for name in ("quasar-t", "qqp", "wiki-auto", "commonsense-conversation", "tiny", "small")
}


def build(config: DecoupledConfig, tokenizer: Tokenizer) -> DiffusionModel:
    """The untrained model: DiffuSeq's, with another denoiser."""
    diffuseq.require_z0(config)
    diffuseq.require_joint_network(config)
    model = diffuseq.build(config, tokenizer)
    model.denoiser = diffuseq.build_denoiser(config, tokenizer, SeparateSourceTransformer)
    return model


def initialize(config: DecoupledConfig, model: DiffusionModel) -> None:
    """Load the embeddings of the source, if the config names a model or a file."""
    assert isinstance(model.denoiser, SeparateSourceTransformer)
    if config.model.embeddings_from:
        load_embeddings(model.denoiser.source_embedding, model.tokenizer, Path(config.model.embeddings_from))


RECIPE = Recipe(
    name="diffuseq-decoupled",
    paper="DiffuSeq (Gong et al., 2023)",
    paper_section="4.3",
    summary="DiffuSeq whose source has the embeddings of another model, which are not trained.",
    presets=PRESETS,
    default_preset="quasar-t",
    build=build,
    objective=diffuseq.objective,
    initialize=initialize,
)
