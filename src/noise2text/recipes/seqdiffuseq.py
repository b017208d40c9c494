"""SeqDiffuSeq (Yuan et al., 2022): encoder-decoder, self-conditioning, a schedule that adapts to the losses.

    noise2text train seqdiffuseq --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset qqp

Padded target layout + SeqDiffuSeqEncoderDecoder with self-conditioning + AdaptiveSchedule(SqrtSchedule);
vlb + rounding + prior (eq. 6); ancestral sampling, with some steps from the prior. The model also generates
the end of the text and the padding after it. Difformer's noise factor and anchor loss can be added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from noise2text.core.config import Config, option, section
from noise2text.core.errors import Problem
from noise2text.data.config import DataConfig, FolderTokenizerDataConfig
from noise2text.data.layouts.padded_target import PaddedTargetLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.config_groups import (
    AdaptiveScheduleConfig,
    DifformerPartsConfig,
    SelfConditioningConfig,
    SourceDropoutConfig,
    TimeSamplerConfig,
    refuse_averages_of_adaptive_models,
    require_whole_bins,
)
from noise2text.diffusion.losses import AnchorLoss, MseLoss, PriorLoss, RoundingLoss
from noise2text.diffusion.schedules import Schedule, SqrtSchedule
from noise2text.generation.config import PriorSamplingGenerationConfig
from noise2text.models import DiffusionModel
from noise2text.models.init_from_teacher import initialize_from_teacher
from noise2text.models.presets import SMALL_DIFFUSION, TINY_DIFFUSION
from noise2text.models.registry import Recipe
from noise2text.nn.config import EncoderDecoderFromTeacherConfig, build_encoder_decoder
from noise2text.nn.denoiser import Denoiser
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.encoder_decoder import EncoderDecoder
from noise2text.nn.seqdiffuseq_network import ENCODER_DECODERS
from noise2text.training.adaptive_objective import AdaptiveObjective
from noise2text.training.config import OptimConfig, RunConfig
from noise2text.training.noise_factor_search import with_noise_factor_search
from noise2text.training.objective import Objective
from noise2text.training.source_dropout import require_dropout_for_guidance, with_source_dropout

__all__ = ["PRESETS", "RECIPE", "SeqDiffuSeqConfig", "build", "build_model", "objective"]


@dataclass(frozen=True)
class SeqDiffuSeqModelConfig(EncoderDecoderFromTeacherConfig):
    """The transformer of table 6."""

    network: str = option(
        "seqdiffuseq",
        "whose encoder-decoder it is: seqdiffuseq or difformer",
        choices=tuple(ENCODER_DECODERS),
    )
    ffn_dim: int = 2048
    heads: int = 8
    dropout: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.from_folder and self.network != "difformer":
            raise Problem(
                "The setting from_folder takes a Transformer's layers, which SeqDiffuSeq's own network does "
                "not have: set network to difformer, too."
            )


@dataclass(frozen=True)
class SeqDiffuSeqDiffusionConfig(
    DifformerPartsConfig,
    SourceDropoutConfig,
    SelfConditioningConfig,
    TimeSamplerConfig,
    AdaptiveScheduleConfig,
):
    """The adaptive schedule of section 4.3, and parts of Difformer that it can be crossed with."""

    refit_every: int = option(20_000, "updates between two refits of the schedule; 0 keeps it at sqrt")
    refit_start: int = 20_000

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole_bins(self, "refit_bin_size")


@dataclass(frozen=True)
class SeqDiffuSeqConfig(Config):
    """Section 5.3, appendix D and table 6; the defaults are its translation column."""

    data: DataConfig = section(FolderTokenizerDataConfig(max_target=63), "how texts become tokens")
    model: SeqDiffuSeqModelConfig = section(SeqDiffuSeqModelConfig(), "the network")
    diffusion: SeqDiffuSeqDiffusionConfig = section(SeqDiffuSeqDiffusionConfig(), "noise and loss")
    optim: OptimConfig = section(
        OptimConfig(
            steps=1_000_000,
            lr=1e-4,
            betas=(0.9, 0.999),
            weight_decay=0.0,
            lr_schedule="linear",
            clip_norm=0.0,
            ema_decay=0.9999,
        ),
        "the optimizer",
    )
    generation: PriorSamplingGenerationConfig = section(PriorSamplingGenerationConfig(), "how it generates")
    run: RunConfig = section(RunConfig(validate_every=10_000), "seed, hardware, logging")

    def __post_init__(self) -> None:
        refuse_averages_of_adaptive_models(self.diffusion, average_best=self.optim.average_best)
        require_dropout_for_guidance(
            source_dropout=self.diffusion.source_dropout, guidance_weight=self.generation.guidance_weight
        )


_IWSLT14 = SeqDiffuSeqConfig().replace(max_tokens=128 * 64)
_WMT14 = _IWSLT14.replace(max_tokens=1024 * 64, vocabulary=32_768)
_OTHERS = _IWSLT14.replace(
    model_dim=768, heads=12, ffn_dim=3072, dropout=0.1, vocabulary=30_522, lowercase=True
)

PRESETS: dict[str, SeqDiffuSeqConfig] = {
    "iwslt14-de-en": _IWSLT14,
    "iwslt14-en-de": _IWSLT14,
    "wmt14-en-de": _WMT14,
    "wmt14-de-en": _WMT14,
    "wmt16-en-ro": _WMT14.replace(max_tokens=128 * 64),  # run by Difformer; D.1: 128 pairs except for WMT14
    "gigaword": _OTHERS,  # run by Difformer; no translation
    "qqp": _OTHERS,
    "wiki-auto": _OTHERS,
    "quasar-t": _OTHERS,
    "commonsense-conversation": _OTHERS,
    "tiny": _IWSLT14.replace(
        TINY_DIFFUSION,
        embedding_dim=8,
        refit_every=400,
        refit_start=400,
        refit_bin_size=100,
        refit_min_count=250,
        **{"generation.steps": 50},
    ),
}
PRESETS["small"] = PRESETS["tiny"].replace(
    SMALL_DIFFUSION, network="difformer", embedding_dim=16, refit_every=500, refit_start=500
)


def build(config: SeqDiffuSeqConfig, tokenizer: Tokenizer) -> DiffusionModel:
    """The untrained model."""
    diffusion = config.diffusion
    embedding = TokenEmbedding(len(tokenizer), config.model.embedding_dim, scale=1.0, bias=True)
    width = config.data.max_target + 1  # with the end token
    schedule = diffusion.build_adaptive_schedule(SqrtSchedule(diffusion.num_timesteps), width)
    return build_model(
        config,
        tokenizer,
        embedding,
        schedule,
        ENCODER_DECODERS[config.model.network],
        source_dropout=diffusion.source_dropout,
    )


def build_model(
    config: Any,
    tokenizer: Tokenizer,
    embedding: TokenEmbedding,
    schedule: Schedule,
    network_class: Callable[..., Denoiser] = EncoderDecoder,
    *,
    source_dropout: float = 0.0,
) -> DiffusionModel:
    """The untrained model with these embeddings and this schedule, over targets padded to the full length."""
    data = config.data
    width = data.max_target + 1  # with the end token
    return DiffusionModel(
        tokenizer,
        layout=PaddedTargetLayout(tokenizer.pad, eos=tokenizer.eos, width=width),
        denoiser=build_encoder_decoder(
            config.model,
            embedding,
            source_positions=data.max_source,
            target_positions=width,
            network_class=network_class,
        ),
        schedule=schedule,
        generation_config=config.generation,
        max_source=data.max_source,
        max_target=data.max_target,
        allowed_special_tokens=(tokenizer.eos, tokenizer.pad),
        source_dropout=source_dropout,
    )


def objective(config: SeqDiffuSeqConfig, model: DiffusionModel) -> Objective:
    """The training objective: eq. 6; `difficulty`, the error outside of padding, only adapts the schedule.

    For guidance, some pairs have no source; the schedule adapts to the losses of these, too.
    """
    assert isinstance(model.layout, PaddedTargetLayout)
    diffusion, start = config.diffusion, SqrtSchedule(config.diffusion.num_timesteps)
    schedule = diffusion.build_training_schedule(model.schedule)
    plain = AdaptiveObjective(
        model.denoiser,
        schedule.to(model.device),
        diffusion.build_time_sampler().to(model.device),
        terms=[
            MseLoss(),
            RoundingLoss(),
            PriorLoss(final_alpha=start.final_alpha),
            *([AnchorLoss(weight=diffusion.anchor_weight, smoothing=0.0)] if diffusion.anchor_weight else []),
            MseLoss("difficulty", None, always_computed=True, make_mask=model.layout.non_padding_mask),
        ],
        self_conditioning=diffusion.self_conditioning,
        z0_noise=start.z0_noise,
        observed_term="difficulty",
        refit_every=diffusion.refit_every,
        refit_start=diffusion.refit_start,
    )
    searching = with_noise_factor_search(plain, diffusion)
    return with_source_dropout(searching, model.layout, diffusion.source_dropout)


def initialize(config: SeqDiffuSeqConfig, model: DiffusionModel) -> None:
    """Copy the layers of a teacher, where the config names one."""
    if config.model.from_folder:
        initialize_from_teacher(config, model)


RECIPE = Recipe(
    name="seqdiffuseq",
    paper="SeqDiffuSeq (Yuan et al., 2022)",
    paper_section="4",
    summary="Encoder-decoder diffusion with a noise schedule that adapts to the losses of each position.",
    presets=PRESETS,
    default_preset="iwslt14-de-en",
    build=build,
    objective=objective,
    initialize=initialize,
)
