"""DiffuSeq (Gong et al., ICLR 2023): source and target on one canvas, of which only the target is noised.

    noise2text train diffuseq --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset qqp

Joint layout + encoder-only transformer + sqrt schedule + loss-aware times; vlb + rounding of z₀ + prior.
In generation the source is set again after each step, and every estimate is moved to the nearest embedding
(rounding, `clamp`). The canvas always has the full length; the model ends a text by generating
padding.

Demirag's variants for translation (2023; `diffuseq_variants.py`) are this recipe with another part: what the
network predicts (`parameterization`), the schedule, or training without some sources (`source_dropout`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from noise2text.core.config import Config, option, section
from noise2text.core.errors import Problem
from noise2text.data.config import DataConfig
from noise2text.data.layouts.aligned_joint import AlignedJointLayout
from noise2text.data.layouts.joint import NUM_SPECIAL_TOKENS, JointLayout
from noise2text.data.layouts.released_diffuseq import ReleasedDiffuSeqLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.diffuseq_config import DiffuSeqDiffusionConfig
from noise2text.diffusion.diffuseq_losses import LOSS_TERMS, LOSS_WEIGHTINGS
from noise2text.diffusion.losses import NllLoss
from noise2text.diffusion.parameterization import PARAMETERIZATIONS, Parameterization
from noise2text.diffusion.schedules import AlphaBarSchedule
from noise2text.generation.config import DiffusionGenerationConfig
from noise2text.models import DiffusionModel
from noise2text.models.presets import SMALL_CANVAS
from noise2text.models.registry import Recipe
from noise2text.nn.config import JointTransformerConfig
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.joint_transformer import JointTransformer
from noise2text.nn.layers import LayerShape, LayerStack, UnpaddedLayerStack
from noise2text.nn.released_diffuseq_transformer import ReleasedDiffuSeqTransformer
from noise2text.training.config import OptimConfig, RunConfig
from noise2text.training.noise_factor_search import with_noise_factor_search
from noise2text.training.objective import DiffusionObjective, Objective
from noise2text.training.source_dropout import require_dropout_for_guidance, with_source_dropout

__all__ = [
    "DEMIRAG_2023",
    "PRESETS",
    "RECIPE",
    "DiffuSeqConfig",
    "DiffuSeqModelConfig",
    "build",
    "build_denoiser",
    "build_model",
    "objective",
    "require_joint_network",
    "require_z0",
]

DEMIRAG_2023 = "Classifier-free Diffusion Models for Machine Translation (Demirag, 2023)"
"""Yunus Demirag's bachelor's thesis, Karlsruhe Institute of Technology, 2023: the variants of DiffuSeq."""

_NETWORKS: dict[str, tuple[type[JointTransformer], type[JointLayout]]] = {
    "joint": (JointTransformer, JointLayout),
    "released": (ReleasedDiffuSeqTransformer, ReleasedDiffuSeqLayout),
}


@dataclass(frozen=True)
class DiffuSeqModelConfig(JointTransformerConfig):
    """The transformer, and whose details it has."""

    network: str = option(
        "joint",
        "joint, or released: the time embedding, layer norms and special tokens of released weights",
        choices=_NETWORKS,
    )


@dataclass(frozen=True)
class DiffuSeqConfig(Config):
    """Section 4.1, or the released code where the paper does not say; the defaults are those of QQP."""

    data: DataConfig = section(
        DataConfig(vocabulary=30_522, lowercase=True, max_source=63, max_target=62), "how texts become tokens"
    )
    model: DiffuSeqModelConfig = section(DiffuSeqModelConfig(), "the transformer")
    diffusion: DiffuSeqDiffusionConfig = section(DiffuSeqDiffusionConfig(), "noise and loss")
    optim: OptimConfig = section(
        OptimConfig(
            steps=50_000,
            max_tokens=4_032,
            accumulate=32,
            lr=1e-4,
            betas=(0.9, 0.999),
            weight_decay=0.0,
            lr_schedule="linear",
            warmup=0,
            clip_norm=0.0,
            ema_decay=0.9999,
        ),
        "the optimizer",
    )
    generation: DiffusionGenerationConfig = section(
        DiffusionGenerationConfig(steps=2000, noise_beam=10, clamp=True), "how it generates"
    )
    run: RunConfig = section(RunConfig(validation_sentences=100), "seed, hardware, logging")

    def __post_init__(self) -> None:
        PARAMETERIZATIONS[self.diffusion.parameterization].validate(
            build_schedule(self), noise_factor=self.diffusion.noise_factor, precision=self.run.precision
        )
        require_dropout_for_guidance(
            source_dropout=self.diffusion.source_dropout, guidance_weight=self.generation.guidance_weight
        )


def build_schedule(config: DiffuSeqConfig) -> AlphaBarSchedule:
    """The noise schedule."""
    return config.diffusion.build_schedule(
        max_source=config.data.max_source, max_target=config.data.max_target
    )


_QQP = DiffuSeqConfig()
# Difformer ran DiffuSeq on these, and says only how it trained all systems (table 21): DiffuSeq's network
# with the vocabulary, the steps and the tokens per update of that table.
_IWSLT14 = _QQP.replace(
    {"optim.steps": 300_000}, vocabulary=10_000, lowercase=False, max_tokens=8_064, accumulate=1
)
_WMT = _IWSLT14.replace(vocabulary=32_768, accumulate=8)

PRESETS: dict[str, DiffuSeqConfig] = {
    "qqp": _QQP,
    "quasar-t": _QQP.replace({"optim.steps": 40_000}),
    "wiki-auto": _QQP.replace({"optim.steps": 80_000}),
    "commonsense-conversation": _QQP.replace({"optim.steps": 140_000}),
    "iwslt14-de-en": _IWSLT14,
    "wmt14-en-de": _WMT,
    "wmt16-en-ro": _WMT,
    "gigaword": _WMT,
    "covost-de-en": _QQP.replace(  # Demirag (2023), 4.1
        {"optim.steps": 80_000},
        vocabulary=30_000,
        lowercase=False,
        normalize=True,
        max_tokens=8_064,
        accumulate=16,
        loss_positions="algorithm-6",
        noise_beam=1,
    ),
    "tiny": _QQP.replace(
        {"optim.steps": 2_800, "generation.steps": 50},
        tokenizer="characters",
        max_source=36,
        max_target=10,
        model_dim=128,
        embedding_dim=16,
        ffn_dim=256,
        heads=4,
        layers=3,
        dropout=0.0,
        max_tokens=1_120,
        accumulate=1,
        lr=2e-3,
        warmup=100,
        lr_schedule="cosine",
        clip_norm=1.0,
        ema_decay=0.0,
        num_timesteps=200,
        noise_beam=1,
        log_every=50,
        validate_every=700,
        save_every=700,
        validation_sentences=50,
    ),
}
PRESETS["small"] = PRESETS["tiny"].replace(SMALL_CANVAS)


def build_denoiser(
    config: Any,
    tokenizer: Tokenizer,
    network_class: type[JointTransformer] = JointTransformer,
    *,
    positions: int | None = None,
    layer_stack: type[LayerStack] = UnpaddedLayerStack,
) -> JointTransformer:
    """The untrained transformer over the canvas."""
    data = config.data
    return network_class(
        TokenEmbedding(len(tokenizer), config.model.embedding_dim, scale=1.0, bias=True),
        LayerShape.from_config(config.model),
        layers=config.model.layers,
        positions=positions or data.max_source + data.max_target + NUM_SPECIAL_TOKENS,
        layer_stack=layer_stack,
    )


def build(config: DiffuSeqConfig, tokenizer: Tokenizer) -> DiffusionModel:
    """The untrained model."""
    diffusion = config.diffusion
    network_class, layout_class = _NETWORKS[config.model.network]
    layout: Callable[..., JointLayout] = layout_class
    num_special_tokens = layout_class.num_special_tokens
    if diffusion.has_aligned_targets:
        require_joint_network(config)
        layout = partial(AlignedJointLayout, max_source=config.data.max_source)
    schedule = build_schedule(config)
    return build_model(
        config,
        tokenizer,
        layout,
        schedule,
        parameterization=diffusion.build_parameterization(schedule),
        source_dropout=diffusion.source_dropout,
        network_class=network_class,
        num_special_tokens=num_special_tokens,
    )


def require_joint_network(config: DiffuSeqConfig) -> None:
    """Refuse the network of the released code, for what that code cannot do."""
    if config.model.network != "joint":
        raise Problem("The setting network must be joint for this recipe, and with aligned targets.")


def require_z0(config: DiffuSeqConfig) -> None:
    """Refuse other parameterizations, for recipes whose network computes the clean estimate itself."""
    chosen = config.diffusion.parameterization
    if chosen != "z0":
        raise Problem(f"The setting parameterization must be z0 for this recipe, not {chosen}.")


def build_model(
    config: Any,
    tokenizer: Tokenizer,
    layout_class: Callable[..., JointLayout],
    schedule: AlphaBarSchedule,
    *,
    parameterization: Parameterization | None = None,
    source_dropout: float = 0.0,
    model_class: type[DiffusionModel] = DiffusionModel,
    network_class: type[JointTransformer] = JointTransformer,
    num_special_tokens: int = NUM_SPECIAL_TOKENS,
) -> DiffusionModel:
    """The untrained model with this layout and schedule; without a parameterization, it predicts z₀."""
    data = config.data
    width = data.max_source + data.max_target + num_special_tokens
    layout = layout_class(
        tokenizer.pad,
        bos=tokenizer.bos,
        sep=tokenizer.sep,
        eos=tokenizer.eos,
        width=width,
    )
    layer_stack = UnpaddedLayerStack if layout.has_no_padding else LayerStack
    network = build_denoiser(config, tokenizer, network_class, positions=width, layer_stack=layer_stack)
    return model_class(
        tokenizer,
        layout=layout,
        denoiser=parameterization.wrap(network) if parameterization else network,
        schedule=schedule,
        generation_config=config.generation,
        max_source=data.max_source,
        max_target=data.max_target,
        allowed_special_tokens=(tokenizer.eos, tokenizer.pad),
        source_dropout=source_dropout,
    )


def objective(config: DiffuSeqConfig, model: DiffusionModel) -> Objective:
    """The training objective: eq. 2 at the times of eq. 3; for guidance, some pairs have no source."""
    assert isinstance(model.layout, JointLayout)
    assert isinstance(model.schedule, AlphaBarSchedule)
    diffusion, schedule = config.diffusion, model.schedule
    weighting = LOSS_WEIGHTINGS[diffusion.loss_weighting](diffusion.build_parameterization(schedule))
    trained = diffusion.build_training_schedule(schedule).to(model.device)
    plain = DiffusionObjective(
        model.denoiser,
        trained,
        diffusion.build_time_sampler().to(model.device),
        terms=[
            *LOSS_TERMS[diffusion.loss_positions](weighting, schedule.final_alpha),
            *diffusion.estimate_terms(),
            # A model that generates only padding has a low nll everywhere (Demirag, 2023, figure 4.3).
            NllLoss("nll_text", None, make_mask=model.layout.non_padding_mask),
        ],
        self_conditioning=0.0,
        z0_noise=schedule.z0_noise,
    )
    searching = with_noise_factor_search(plain, diffusion)
    return with_source_dropout(searching, model.layout, diffusion.source_dropout)


RECIPE = Recipe(
    name="diffuseq",
    paper="DiffuSeq (Gong et al., 2023)",
    paper_section="3",
    summary="One canvas for source and target, of which only the target is noised; loss-aware times.",
    presets=PRESETS,
    default_preset="qqp",
    build=build,
    objective=objective,
)
