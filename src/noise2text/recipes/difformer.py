"""Difformer (Gao et al., NAACL 2024): encoder-decoder, anchor loss, noise rescaling, length prediction.

    noise2text train difformer --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset iwslt14-de-en

Split layout + encoder-decoder with self-conditioning + Rescaled(schedule, F), in training only;
vlb + anchor + 0.1 · length; length beam × noise beam, then selection. F is that of the paper or of its
released scripts where they give it. Elsewhere it is the smallest factor whose degeneration score is at most
`max_dgs` for the task's vocabulary and embedding dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from noise2text.core.config import Config, option, section
from noise2text.core.errors import Problem
from noise2text.data.config import DataConfig, FolderTokenizerDataConfig
from noise2text.data.layouts.released_difformer import ReleasedDifformerLayout
from noise2text.data.layouts.split import SplitLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.boundary_conditional import BoundaryConditional
from noise2text.diffusion.config_groups import refuse_averages_of_adaptive_models
from noise2text.diffusion.degeneration_score import find_noise_factor, random_embeddings
from noise2text.diffusion.difformer_config import DifformerDiffusionConfig
from noise2text.diffusion.losses import LossTerm
from noise2text.diffusion.parameterization import Parameterization
from noise2text.diffusion.schedules import SCHEDULES, Schedule
from noise2text.generation.config import LengthPredictingGenerationConfig
from noise2text.models import LengthPredictingModel
from noise2text.models.init_embeddings import load_embeddings
from noise2text.models.init_from_teacher import initialize_from_teacher
from noise2text.models.presets import DIFFORMER_TABLE_21, SMALL_DIFFUSION
from noise2text.models.progressive_teacher import copy_teacher, load_progressive_teacher
from noise2text.models.registry import Recipe
from noise2text.nn.config import EncoderDecoderFromTeacherConfig, build_encoder_decoder
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.length_predictor import LengthPredictor, ReleasedLengthPredictor
from noise2text.training.adaptive_objective import AdaptiveObjective
from noise2text.training.config import OptimConfig, RunConfig
from noise2text.training.noise_factor_search import with_noise_factor_search
from noise2text.training.objective import DiffusionObjective, Objective
from noise2text.training.progressive_distillation import ProgressiveDistillation
from noise2text.training.source_dropout import require_dropout_for_guidance, with_source_dropout

__all__ = [
    "PRESETS",
    "RECIPE",
    "DifformerConfig",
    "DifformerDiffusionConfig",
    "DifformerModelConfig",
    "build",
    "build_model",
    "build_objective",
    "initialize",
    "objective",
    "resolve",
]


_NETWORKS: dict[str, tuple[Callable[[Tokenizer], SplitLayout], type[LengthPredictor]]] = {
    "difformer": (lambda tokenizer: SplitLayout(tokenizer.pad), LengthPredictor),
    "released": (
        lambda tokenizer: ReleasedDifformerLayout(tokenizer.pad, bos=tokenizer.bos, eos=tokenizer.eos),
        ReleasedLengthPredictor,
    ),
}


@dataclass(frozen=True)
class DifformerModelConfig(EncoderDecoderFromTeacherConfig):
    """The transformer of table 21, and where its weights may start from."""

    dropout: float = 0.3
    network: str = option(
        "difformer",
        "difformer, or released: the begin, end and length classes of released weights",
        choices=_NETWORKS,
    )
    embeddings_from: str = option(
        "", "start from these embeddings: a model folder with the same tokens, or a .npy array (V, d)"
    )
    freeze_embeddings: bool = option(False, "do not train the embeddings (appendix C.3)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.from_folder and self.embeddings_from:
            raise Problem("Embeddings come from one model: set from_folder or embeddings_from, not both.")


@dataclass(frozen=True)
class DifformerConfig(Config):
    """The settings of table 21; the defaults are its IWSLT14 column."""

    data: DataConfig = section(FolderTokenizerDataConfig(), "how texts become tokens")
    model: DifformerModelConfig = section(DifformerModelConfig(), "the encoder-decoder")
    diffusion: DifformerDiffusionConfig = section(DifformerDiffusionConfig(), "noise and loss")
    optim: OptimConfig = section(OptimConfig(), "the optimizer")
    generation: LengthPredictingGenerationConfig = section(
        LengthPredictingGenerationConfig(), "how it generates"
    )
    run: RunConfig = section(RunConfig(), "seed, hardware, logging")

    def __post_init__(self) -> None:
        if self.model.network == "released" and self.data.max_source > self.data.max_target + 128:
            raise Problem(
                f"With network=released a target is at most 128 tokens shorter than its source: set "
                f"max_source to at most {self.data.max_target + 128}, not {self.data.max_source}."
            )
        refuse_averages_of_adaptive_models(self.diffusion, average_best=self.optim.average_best)
        require_dropout_for_guidance(
            source_dropout=self.diffusion.source_dropout, guidance_weight=self.generation.guidance_weight
        )


_IWSLT14 = DifformerConfig()
_TABLE_21 = DIFFORMER_TABLE_21 | {"quasar-t": DIFFORMER_TABLE_21["quasar-t"] | {"max_dgs": 0.20}}

RELEASED_FACTORS = {"iwslt14-de-en": 4.0, "wmt14-en-de": 3.5, "qqp": 4.0, "wiki-auto": 4.0}
"""F of the released scripts, and for IWSLT14 of tables 9, 13, 14 and 17. Elsewhere F is searched."""

PRESETS: dict[str, DifformerConfig] = {
    **{
        name: _IWSLT14.replace(changes, noise_factor=RELEASED_FACTORS.get(name))
        for name, changes in _TABLE_21.items()
    },
    "tiny": _IWSLT14.replace(
        {"optim.steps": 3_000},
        model_dim=128,
        ffn_dim=512,
        heads=4,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.2,
        vocabulary=4_000,
        max_tokens=1_024,
        lr=1.5e-3,
        warmup=400,
        lr_schedule="cosine",
        log_every=100,
        validate_every=1_000,
        save_every=500,
        length_beam=1,  # more do harm where only one is right (docs/notebook/compare.md)
    ),
}
PRESETS["small"] = PRESETS["tiny"].replace(
    SMALL_DIFFUSION | {"optim.steps": 3_000},
    max_source=40,
    max_target=40,
    lr=7e-4,
    length_beam=5,
    noise_beam=2,
    validate_every=1_500,
    save_every=1_500,
)


def resolve(
    config: DifformerConfig, tokenizer: Tokenizer, *, schedule: Schedule | None = None
) -> DifformerConfig:
    """The config with the noise factor for this vocabulary, embedding dimension and schedule.

    A student generates in the steps that it is trained for.
    """
    diffusion = config.diffusion
    if diffusion.student_steps:
        if not config.model.from_folder:
            raise Problem("A student needs a teacher: name the folder of a difformer in from_folder.")
        config = config.replace({"generation.steps": diffusion.student_steps + 1}, stop_early=1, eta=0.0)
    if diffusion.noise_factor is not None:
        return config
    found = find_noise_factor(
        schedule or SCHEDULES[diffusion.schedule](diffusion.num_timesteps),
        random_embeddings(len(tokenizer), config.model.embedding_dim),
        target=diffusion.max_dgs,
        rescale=diffusion.rescaling,
    )
    return config.replace(noise_factor=found.factor)


def build(config: DifformerConfig, tokenizer: Tokenizer) -> LengthPredictingModel:
    """The untrained model."""
    _, length_predictor_class = _NETWORKS[config.model.network]
    positions = config.data.max_target + length_predictor_class.num_special_tokens
    schedule = config.diffusion.build_schedule(positions=positions)
    return build_model(config, tokenizer, schedule, config.diffusion.build_training_schedule(schedule))


def build_model(
    config: DifformerConfig,
    tokenizer: Tokenizer,
    schedule: Schedule,
    training_schedule: Schedule,
    *,
    parameterization: Parameterization | None = None,
) -> LengthPredictingModel:
    """The untrained model with these schedules; without a parameterization, it predicts z₀."""
    data = config.data
    make_layout, length_predictor_class = _NETWORKS[config.model.network]
    layout, added = make_layout(tokenizer), length_predictor_class.num_special_tokens
    embedding = TokenEmbedding(len(tokenizer), config.model.embedding_dim)
    is_student = config.diffusion.student_steps > 0  # its teacher's estimates are in the space of these
    embedding.weight.requires_grad_(not (config.model.freeze_embeddings or is_student))
    network = build_encoder_decoder(
        config.model,
        embedding,
        source_positions=data.max_source + added,
        target_positions=data.max_target + added,
    )
    return LengthPredictingModel(
        tokenizer,
        layout=layout,
        denoiser=parameterization.wrap(network) if parameterization else network,
        schedule=schedule,
        training_schedule=training_schedule,
        length_predictor=length_predictor_class(
            config.model.model_dim, max_length=data.max_target, max_source=data.max_source
        ),
        generation_config=config.generation,
        max_source=data.max_source,
        max_target=data.max_target,
        allowed_special_tokens=layout.surrounding_tokens,
        source_dropout=config.diffusion.source_dropout,
    )


def initialize(config: DifformerConfig, model: LengthPredictingModel) -> None:
    """Copy the layers of a teacher or the embeddings of another model, where the config names one."""
    if config.diffusion.student_steps:
        copy_teacher(model, load_progressive_teacher(config, model, recipe=RECIPE.name))
    elif config.model.from_folder:
        initialize_from_teacher(config, model)
    if config.model.embeddings_from:
        load_embeddings(model.denoiser.embedding, model.tokenizer, Path(config.model.embeddings_from))


def objective(config: DifformerConfig, model: LengthPredictingModel) -> Objective:
    """The training objective: eq. 2, and the length."""
    return build_objective(config, model, config.diffusion.loss_terms(model.lengths))


def build_objective(
    config: DifformerConfig, model: LengthPredictingModel, terms: Sequence[LossTerm]
) -> Objective:
    """The objective of these terms; times and schedule may follow the first one.

    For guidance, some pairs have no source.
    """
    diffusion = config.diffusion
    searching = with_noise_factor_search(_build_pair_objective(config, model, terms), diffusion)
    return with_source_dropout(searching, model.layout, diffusion.source_dropout)


def _build_pair_objective(
    config: DifformerConfig, model: LengthPredictingModel, terms: Sequence[LossTerm]
) -> DiffusionObjective:
    """The objective of pairs with their sources."""
    diffusion = config.diffusion
    assert diffusion.noise_factor is not None, "resolve the config first"
    if diffusion.student_steps:
        return ProgressiveDistillation(
            model.denoiser,
            model.schedule,
            teacher=load_progressive_teacher(config, model, recipe=RECIPE.name).denoiser,
            steps=diffusion.student_steps,
            terms=terms,
            self_conditioning=diffusion.self_conditioning,
            self_condition_noise=diffusion.self_condition_noise,
        )
    token_levels: BoundaryConditional | None = None
    if diffusion.boundary_confidence:
        token_levels = BoundaryConditional(
            model.training_schedule, model.denoiser.embedding, diffusion.boundary_confidence
        )
    kind: Callable[..., DiffusionObjective] = DiffusionObjective
    if diffusion.refit_every:
        kind = partial(
            AdaptiveObjective, refit_every=diffusion.refit_every, refit_start=diffusion.refit_start
        )
    return kind(
        model.denoiser,
        model.training_schedule,
        diffusion.build_time_sampler().to(model.device),
        terms=terms,
        self_conditioning=diffusion.self_conditioning,
        self_condition_noise=diffusion.self_condition_noise,
        token_levels=token_levels,
    )


RECIPE = Recipe(
    name="difformer",
    paper="Difformer (Gao et al., 2024)",
    paper_section="3",
    summary="Encoder-decoder diffusion with anchor loss, noise rescaling and length beam.",
    presets=PRESETS,
    default_preset="iwslt14-de-en",
    resolve=resolve,
    build=build,
    objective=objective,
    initialize=initialize,
)
