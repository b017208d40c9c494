"""DiffuSeq (Gong et al., ICLR 2023): source and target on one canvas, of which only the target is noised.

    noise2text train diffuseq --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset qqp

Joint layout + encoder-only transformer + sqrt schedule + loss-aware times; vlb + rounding of z₀ + prior.
In generation the source is held at each step (anchoring) and every estimate is moved to the nearest embedding
(rounding, `clamp`). The canvas is always full, and the padding that the model writes decides the length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from noise2text.core.config import (
    option,
    require_at_least,
    require_choice,
    require_divisible_heads,
    require_fraction,
)
from noise2text.core.errors import Problem
from noise2text.data.layouts.aligned_joint import AlignedJointLayout
from noise2text.data.layouts.base import Canvas
from noise2text.data.layouts.joint import NUM_SPECIAL_TOKENS, JointLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.loss_aware_times import LossAwareTimes
from noise2text.diffusion.losses import (
    LossTerm,
    MseLoss,
    NllLoss,
    PriorLoss,
    RoundingLoss,
    TokenLoss,
    scored_positions,
    uniform_weight,
    visible_positions,
)
from noise2text.diffusion.schedules import SCHEDULES, Rescaled, Schedule, z0_noise_and_final_alpha
from noise2text.diffusion.time_samplers import TimeSampler, UniformTimes
from noise2text.generation.config import DiffusionGenerationConfig
from noise2text.models import DiffusionModel
from noise2text.models.registry import Recipe, keep_config
from noise2text.nn.denoiser import NoiseLevel
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.joint_transformer import JointTransformer
from noise2text.training.config import TrainingConfig
from noise2text.training.objective import DiffusionObjective, Draws

__all__ = [
    "LOSS_POSITIONS",
    "PRESETS",
    "RECIPE",
    "DiffuSeqConfig",
    "JointConfig",
    "LossAwareObjective",
    "build",
    "build_denoiser",
    "build_with_layout",
    "find_layout",
    "objective",
]

LOSS_POSITIONS: dict[str, dict[str, Callable[[Canvas], Tensor]]] = {
    "equation-2": {"vlb": scored_positions, "rounding": visible_positions, "prior": visible_positions},
    "algorithm-6": {"vlb": visible_positions, "rounding": scored_positions},
    "released": {"vlb": visible_positions, "rounding": visible_positions, "prior": visible_positions},
    "target": {"vlb": scored_positions, "rounding": scored_positions, "prior": scored_positions},
}
"""Which positions each term counts: the paper's eq. 2, the thesis's algorithm 6, the released code; the last
is for a source that is not learned."""

_TIMES: dict[str, type[TimeSampler]] = {"loss-aware": LossAwareTimes, "uniform": UniformTimes}


@dataclass(frozen=True)
class JointConfig(TrainingConfig):
    """What models of one canvas have in common; the defaults are those of DiffuSeq's paraphrase (QQP)."""

    vocabulary: int = option(30_522, "how many tokens a learned BPE has")
    lowercase: bool = option(True, "lowercase all text")
    max_source: int = option(63, "longest source in tokens; what is longer is cut and counted")
    max_target: int = option(62, "longest target; the canvas holds both, and begin, separator and end")
    steps: int = option(50_000, "how many updates to train")
    max_tokens: int = option(4_032, "padded tokens of the longer side in a batch")
    accumulate: int = option(32, "micro-batches an update; each has `tokens` tokens")
    lr: float = option(1e-4, "the peak of the learning rate")
    betas: tuple[float, float] = option((0.9, 0.999), "Adam's β")
    weight_decay: float = option(0.0, "AdamW's decay of the weights")
    lr_schedule: str = option(
        "linear", "how the learning rate falls: inverse-sqrt, linear, cosine or constant"
    )
    warmup: int = option(0, "steps over which the learning rate rises")
    clip_norm: float = option(0.0, "largest norm of the gradient; 0 leaves it alone")
    ema_decay: float = option(0.9999, "decay of the moving average of the weights, e.g. 0.999; 0 for none")
    validation_sentences: int = option(100, "how many pairs of the validation set are generated for its BLEU")

    model_dim: int = option(768, "of the transformer's states")
    embedding_dim: int = option(128, "d, the dimension of the diffusion")
    ffn_dim: int = option(3072, "width of the feed-forward networks")
    heads: int = option(12, "attention heads")
    layers: int = option(12, "transformer layers")
    dropout: float = option(0.1, "dropout")

    diffusion_steps: int = option(2000, "T, the resolution of time in training")
    schedule: str = option("sqrt", "sqrt, linear or cosine")
    noise_factor: float = option(
        1.0, "F, what multiplies the noise of training (Difformer); 1 as in the paper"
    )
    anchor_weight: float = option(
        0.0, "weight of Difformer's anchor loss, the estimate's nll; 0 as in the paper"
    )
    generation_steps: int = option(2000, "K, the steps of generation, as the model's default")
    noise_beam: int = option(10, "candidates a sentence, as the model's default")
    clamp: bool = option(True, "round every estimate to an embedding in generation, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_divisible_heads(self)
        require_choice(self, "schedule", SCHEDULES)
        require_at_least(
            self, 1, "layers", "embedding_dim", "ffn_dim", "diffusion_steps", "generation_steps", "noise_beam"
        )
        require_fraction(self, "dropout")
        require_at_least(self, 0, "anchor_weight")
        if not self.noise_factor > 0:
            raise Problem(f"The setting factor must be above 0, not {self.noise_factor}.")

    def training_schedule(self, schedule: Schedule) -> nn.Module:
        """The schedule that training goes by."""
        return schedule if self.noise_factor == 1 else Rescaled(schedule, self.noise_factor)

    def loss_weights(self, terms: Iterable[str]) -> dict[str, float]:
        """The weights of the paper's terms, and of the anchor, if it has one."""
        return dict.fromkeys(terms, 1.0) | ({"nll": self.anchor_weight} if self.anchor_weight else {})


@dataclass(frozen=True)
class DiffuSeqConfig(JointConfig):
    """Section 4.1, and the released code where it is silent."""

    time_sampler: str = option("loss-aware", "how training times are drawn: loss-aware (eq. 3) or uniform")
    loss_positions: str = option(
        "equation-2",
        "what the losses count: equation-2 (error on the target, rounding everywhere), algorithm-6 (error "
        "everywhere, rounding on the target), released (everything everywhere) or target (nothing else)",
    )
    align_targets: bool = option(
        False, "begin all targets at the same place, after the longest source; false as in the paper"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self, "time_sampler", _TIMES)
        require_choice(self, "loss_positions", LOSS_POSITIONS)


_QQP = DiffuSeqConfig()

PRESETS: dict[str, DiffuSeqConfig] = {
    "qqp": _QQP,
    "quasar-t": dataclasses.replace(_QQP, steps=40_000),
    "wiki-auto": dataclasses.replace(_QQP, steps=80_000),
    "ccd": dataclasses.replace(_QQP, steps=140_000),
    "covost-de-en": dataclasses.replace(  # the thesis, 4.1
        _QQP,
        vocabulary=30_000,
        lowercase=False,
        normalise=True,
        steps=80_000,
        max_tokens=8_064,
        accumulate=16,
        noise_beam=1,
    ),
    "tiny": dataclasses.replace(
        _QQP,
        tokenizer="characters",
        max_source=36,
        max_target=10,
        model_dim=128,
        embedding_dim=16,
        ffn_dim=256,
        heads=4,
        layers=3,
        dropout=0.0,
        steps=2_800,
        max_tokens=1_120,
        accumulate=1,
        lr=2e-3,
        warmup=100,
        lr_schedule="cosine",
        clip_norm=1.0,
        ema_decay=0.0,
        diffusion_steps=200,
        generation_steps=50,
        noise_beam=1,
        log_every=50,
        validate_every=700,
        save_every=700,
        validation_sentences=50,
    ),
}


class LossAwareObjective(DiffusionObjective):
    """Tells its times how large the error of each row was."""

    def observed(self, draws: Draws, token_losses: Mapping[str, TokenLoss]) -> tuple[Tensor, Tensor]:
        error, counted = token_losses["vlb"].values.detach(), token_losses["vlb"].mask
        rows = torch.where(counted, error, 0).sum(1) / counted.sum(1)
        return draws.t, rows / draws.weight  # the tally is weighted, the history is not

    def observe(self, *observed: Tensor) -> None:
        self.time_sampler.observe(*observed)


def build_denoiser(
    config: JointConfig,
    tokenizer: Tokenizer,
    network_class: type[JointTransformer] = JointTransformer,
    *,
    full: bool = True,
) -> JointTransformer:
    """The untrained transformer over the canvas, of this kind; a full canvas has no padding."""
    return network_class(
        TokenEmbedding(len(tokenizer), config.embedding_dim, scale=1.0, bias=True),
        model_dim=config.model_dim,
        ffn_dim=config.ffn_dim,
        heads=config.heads,
        layers=config.layers,
        dropout=config.dropout,
        positions=config.max_source + config.max_target + NUM_SPECIAL_TOKENS,
        full=full,
    )


def find_layout(config: DiffuSeqConfig) -> Callable[..., JointLayout]:
    """What puts source and target on the canvas."""
    return partial(AlignedJointLayout, max_source=config.max_source) if config.align_targets else JointLayout


def build(config: DiffuSeqConfig, tokenizer: Tokenizer) -> DiffusionModel:
    """The untrained system."""
    return build_with_layout(config, tokenizer, find_layout(config))


def build_with_layout(
    config: JointConfig,
    tokenizer: Tokenizer,
    layout: Callable[..., JointLayout],
    model: type[DiffusionModel] = DiffusionModel,
) -> DiffusionModel:
    """The untrained system with this layout."""
    canvas = config.max_source + config.max_target + NUM_SPECIAL_TOKENS
    laid = layout(tokenizer.pad, bos=tokenizer.bos, sep=tokenizer.sep, eos=tokenizer.eos, width=canvas)
    return model(
        tokenizer,
        layout=laid,
        denoiser=build_denoiser(config, tokenizer, full=laid.has_no_padding),
        schedule=SCHEDULES[config.schedule](config.diffusion_steps),
        generation_config=DiffusionGenerationConfig(
            steps=config.generation_steps, noise_beam=config.noise_beam, clamp=config.clamp
        ),
        max_source=config.max_source,
        max_target=config.max_target,
        writable_specials=(tokenizer.eos, tokenizer.pad),
    )


def objective(
    config: DiffuSeqConfig,
    model: DiffusionModel,
    weighting: Callable[[NoiseLevel], Tensor] = uniform_weight,
    z0_noise_and_final_alpha: Callable[[Schedule, int], tuple[float, float]] = z0_noise_and_final_alpha,
) -> DiffusionObjective:
    """What the system is trained on: eq. 2, with the times of eq. 3."""
    assert isinstance(model.layout, JointLayout)
    steps = config.diffusion_steps
    positions_of = LOSS_POSITIONS[config.loss_positions]
    z0_noise, final_alpha = z0_noise_and_final_alpha(model.schedule, steps)
    loss_terms: dict[str, Callable[[Callable[[Canvas], Tensor]], LossTerm]] = {
        "vlb": lambda positions: MseLoss(positions, weighting=weighting),
        "rounding": RoundingLoss,
        "prior": lambda positions: PriorLoss(positions, final_alpha=final_alpha),
    }
    # A model that writes only padding has a low nll over all positions (thesis, figure 4.3).
    watched = {"nll": NllLoss(), "nll_text": NllLoss(positions=model.layout.non_padding_mask)}
    return LossAwareObjective(
        model.denoiser,
        config.training_schedule(model.schedule),
        _TIMES[config.time_sampler](steps).to(model.device),
        terms={name: loss_terms[name](positions) for name, positions in positions_of.items()} | watched,
        weights=config.loss_weights(positions_of),
        self_conditioning=0.0,
        z0_noise=z0_noise,
    )


RECIPE = Recipe(
    name="diffuseq",
    paper="DiffuSeq (Gong et al., 2023)",
    section="3",
    summary="One canvas for source and target, of which only the target is noised; loss-aware times.",
    presets=PRESETS,
    default_preset="qqp",
    resolve=keep_config,
    build=build,
    objective=objective,
)
