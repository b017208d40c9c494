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

from noise2text.core.config import option, require_choice, require_heads, require_least, require_share
from noise2text.core.errors import Problem
from noise2text.data.layouts.canvas import Canvas
from noise2text.data.layouts.joint import MARKS, Joint
from noise2text.data.layouts.joint_aligned import Fixed
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.loss_aware_times import LossAware
from noise2text.diffusion.losses import Mse, Nll, Prior, Rounding, Tally, Term, everything, scored, unweighed
from noise2text.diffusion.schedules import SCHEDULES, Rescaled, Schedule, ends
from noise2text.diffusion.time_samplers import Times, Uniform
from noise2text.generation.config import DiffusionSettings
from noise2text.models import Diffusion
from noise2text.models.registry import Recipe, unchanged
from noise2text.nn.denoiser import Level
from noise2text.nn.embeddings import Space
from noise2text.nn.joint_transformer import JointTransformer
from noise2text.training.config import TrainingSettings
from noise2text.training.objective import DiffusionObjective, Draws

__all__ = [
    "COVERAGES",
    "PRESETS",
    "RECIPE",
    "DiffuseqSettings",
    "Importance",
    "JointSettings",
    "build",
    "laid_out",
    "layout_of",
    "network",
    "objective",
]

COVERAGES: dict[str, dict[str, Callable[[Canvas], Tensor]]] = {
    "equation-2": {"vlb": scored, "rounding": everything, "prior": everything},
    "algorithm-6": {"vlb": everything, "rounding": scored},
    "released": {"vlb": everything, "rounding": everything, "prior": everything},
    "target": {"vlb": scored, "rounding": scored, "prior": scored},
}
"""Which positions each term counts: the paper's eq. 2, the thesis's algorithm 6, the released code; the last
is for a source that is not learned."""

_TIMES: dict[str, type[Times]] = {"loss-aware": LossAware, "uniform": Uniform}


@dataclass(frozen=True)
class JointSettings(TrainingSettings):
    """What models of one canvas have in common; the defaults are those of DiffuSeq's paraphrase (QQP)."""

    vocabulary: int = option(30_522, "how many tokens a learned BPE has")
    lowercase: bool = option(True, "lowercase all text")
    max_source: int = option(63, "longest source in tokens; what is longer is cut and counted")
    max_target: int = option(62, "longest target; the canvas holds both, and begin, separator and end")
    steps: int = option(50_000, "how many updates to train")
    tokens: int = option(4_032, "padded tokens of the longer side in a batch")
    accumulate: int = option(32, "micro-batches an update; each has `tokens` tokens")
    learning_rate: float = option(1e-4, "the peak of the learning rate")
    betas: tuple[float, float] = option((0.9, 0.999), "Adam's β")
    weight_decay: float = option(0.0, "AdamW's decay of the weights")
    decay: str = option("linear", "how the learning rate falls: inverse-sqrt, linear, cosine or constant")
    warmup: int = option(0, "steps over which the learning rate rises")
    clip: float = option(0.0, "largest norm of the gradient; 0 leaves it alone")
    ema: float = option(0.9999, "decay of the moving average of the weights, e.g. 0.999; 0 for none")
    validation_sentences: int = option(100, "how many pairs of the validation set are generated for its BLEU")

    width: int = option(768, "of the transformer's states")
    embedding: int = option(128, "d, the dimension of the diffusion")
    ffn: int = option(3072, "width of the feed-forward networks")
    heads: int = option(12, "attention heads")
    layers: int = option(12, "transformer layers")
    dropout: float = option(0.1, "dropout")

    diffusion_steps: int = option(2000, "T, the resolution of time in training")
    schedule: str = option("sqrt", "sqrt, linear or cosine")
    factor: float = option(1.0, "F, what multiplies the noise of training (Difformer); 1 as in the paper")
    anchor: float = option(0.0, "weight of Difformer's anchor loss, the estimate's nll; 0 as in the paper")
    generation_steps: int = option(2000, "K, the steps of generation, as the model's default")
    noise_beam: int = option(10, "candidates a sentence, as the model's default")
    clamp: bool = option(True, "round every estimate to an embedding in generation, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_heads(self)
        require_choice(self, "schedule", SCHEDULES)
        require_least(
            self, 1, "layers", "embedding", "ffn", "diffusion_steps", "generation_steps", "noise_beam"
        )
        require_share(self, "dropout")
        require_least(self, 0, "anchor")
        if not self.factor > 0:
            raise Problem(f"The setting factor must be above 0, not {self.factor}.")

    def noised(self, schedule: Schedule) -> nn.Module:
        """The schedule that training goes by."""
        return schedule if self.factor == 1 else Rescaled(schedule, self.factor)

    def weighed(self, terms: Iterable[str]) -> dict[str, float]:
        """The weights of the paper's terms, and of the anchor, if it has one."""
        return dict.fromkeys(terms, 1.0) | ({"nll": self.anchor} if self.anchor else {})


@dataclass(frozen=True)
class DiffuseqSettings(JointSettings):
    """Section 4.1, and the released code where it is silent."""

    times: str = option("loss-aware", "how training times are drawn: loss-aware (eq. 3) or uniform")
    coverage: str = option(
        "equation-2",
        "what the losses count: equation-2 (error on the target, rounding everywhere), algorithm-6 (error "
        "everywhere, rounding on the target), released (everything everywhere) or target (nothing else)",
    )
    aligned: bool = option(
        False, "begin all targets at the same place, after the longest source; false as in the paper"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self, "times", _TIMES)
        require_choice(self, "coverage", COVERAGES)


_QQP = DiffuseqSettings()

PRESETS: dict[str, DiffuseqSettings] = {
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
        tokens=8_064,
        accumulate=16,
        noise_beam=1,
    ),
    "tiny": dataclasses.replace(
        _QQP,
        tokenizer="characters",
        max_source=36,
        max_target=10,
        width=128,
        embedding=16,
        ffn=256,
        heads=4,
        layers=3,
        dropout=0.0,
        steps=2_800,
        tokens=1_120,
        accumulate=1,
        learning_rate=2e-3,
        warmup=100,
        decay="cosine",
        clip=1.0,
        ema=0.0,
        diffusion_steps=200,
        generation_steps=50,
        noise_beam=1,
        log_every=50,
        validate_every=700,
        save_every=700,
        validation_sentences=50,
    ),
}


class Importance(DiffusionObjective):
    """Tells its times how large the error of each row was."""

    def seen(self, draws: Draws, tallies: Mapping[str, Tally]) -> tuple[Tensor, Tensor]:
        error, counted = tallies["vlb"].value.detach(), tallies["vlb"].mask
        rows = torch.where(counted, error, 0).sum(1) / counted.sum(1)
        return draws.t, rows / draws.weight  # the tally is weighted, the history is not

    def observe(self, *seen: Tensor) -> None:
        self.times.observe(*seen)


def network(
    settings: JointSettings,
    tokenizer: Tokenizer,
    kind: type[JointTransformer] = JointTransformer,
    *,
    full: bool = True,
) -> JointTransformer:
    """The untrained transformer over the canvas, of this kind; a full canvas has no padding."""
    return kind(
        Space(len(tokenizer), settings.embedding, scale=1.0, bias=True),
        width=settings.width,
        ffn=settings.ffn,
        heads=settings.heads,
        layers=settings.layers,
        dropout=settings.dropout,
        positions=settings.max_source + settings.max_target + MARKS,
        full=full,
    )


def layout_of(settings: DiffuseqSettings) -> Callable[..., Joint]:
    """What puts source and target on the canvas."""
    return partial(Fixed, room=settings.max_source) if settings.aligned else Joint


def build(settings: DiffuseqSettings, tokenizer: Tokenizer) -> Diffusion:
    """The untrained system."""
    return laid_out(settings, tokenizer, layout_of(settings))


def laid_out(
    settings: JointSettings,
    tokenizer: Tokenizer,
    layout: Callable[..., Joint],
    system: type[Diffusion] = Diffusion,
) -> Diffusion:
    """The untrained system with this layout."""
    canvas = settings.max_source + settings.max_target + MARKS
    laid = layout(
        tokenizer.pad, begin=tokenizer.bos, separator=tokenizer.sep, end=tokenizer.eos, width=canvas
    )
    return system(
        tokenizer,
        layout=laid,
        denoiser=network(settings, tokenizer, full=laid.full),
        schedule=SCHEDULES[settings.schedule](settings.diffusion_steps),
        how=DiffusionSettings(
            steps=settings.generation_steps, noise_beam=settings.noise_beam, clamp=settings.clamp
        ),
        max_source=settings.max_source,
        max_target=settings.max_target,
        written=(tokenizer.eos, tokenizer.pad),
    )


def objective(
    settings: DiffuseqSettings,
    system: Diffusion,
    weigh: Callable[[Level], Tensor] = unweighed,
    ends: Callable[[Schedule, int], tuple[float, float]] = ends,
) -> DiffusionObjective:
    """What the system is trained on: eq. 2, with the times of eq. 3."""
    assert isinstance(system.layout, Joint)
    steps = settings.diffusion_steps
    over = COVERAGES[settings.coverage]
    blur, remains = ends(system.schedule, steps)
    known: dict[str, Callable[[Callable[[Canvas], Tensor]], Term]] = {
        "vlb": lambda counted: Mse(counted, weigh=weigh),
        "rounding": Rounding,
        "prior": lambda counted: Prior(counted, remains=remains),
    }
    # A model that writes only padding has a low nll over all positions (thesis, figure 4.3).
    watched = {"nll": Nll(), "nll_text": Nll(over=system.layout.spoken)}
    return Importance(
        system.denoiser,
        settings.noised(system.schedule),
        _TIMES[settings.times](steps).to(system.device),
        terms={name: known[name](counted) for name, counted in over.items()} | watched,
        weights=settings.weighed(over),
        self_conditioning=0.0,
        blur=blur,
    )


RECIPE = Recipe(
    name="diffuseq",
    paper="DiffuSeq (Gong et al., 2023)",
    section="3",
    line="One canvas for source and target, of which only the target is noised; loss-aware times.",
    presets=PRESETS,
    default="qqp",
    resolve=unchanged,
    build=build,
    objective=objective,
)
