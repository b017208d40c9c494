"""Diffusion-LM by infilling (Li et al., 2022; for pairs: Demirag, 2023, 3.1).

    noise2text train diffusion-lm --train pairs.jsonl --valid pairs.jsonl --out runs/mine

The canvas, the transformer, the terms and the schedule are DiffuSeq's. But training noises the whole canvas,
source included, at uniform times: this is a model of pairs. Only sampling sets the source again at each step
(algorithm 7), and the model has never seen a clean source beside a noisy target. With `given_source`, it sees
that in some training pairs, too: it stays a model of pairs and learns to translate.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any

from noise2text.core.arguments import parse_whole_number
from noise2text.core.config import Config, apply_overrides, option, section
from noise2text.core.errors import Problem
from noise2text.data.config import DataConfig
from noise2text.data.layouts.joint import InfillingLayout, JointLayout, PairGenerationLayout
from noise2text.data.layouts.template import OPEN_TEMPLATE, Template, parse_template
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.config_groups import TimeSamplerConfig
from noise2text.diffusion.diffuseq_config import JointDiffusionConfig
from noise2text.diffusion.losses import MseLoss, PriorLoss, RoundingLoss
from noise2text.diffusion.schedules import SCHEDULES, AlphaBarSchedule
from noise2text.generation.config import DiffusionGenerationConfig
from noise2text.generation.decoder import SourceBatch
from noise2text.generation.executor import EAGER
from noise2text.models import DiffusionModel
from noise2text.models.registry import Recipe
from noise2text.nn.config import JointTransformerConfig
from noise2text.recipes import diffuseq
from noise2text.training.config import OptimConfig, RunConfig
from noise2text.training.noise_factor_search import with_noise_factor_search
from noise2text.training.objective import DiffusionObjective, Objective

__all__ = ["PRESETS", "RECIPE", "DiffusionLMConfig", "PairDiffusionModel", "build", "objective"]


@dataclass(frozen=True)
class DiffusionLMDiffusionConfig(TimeSamplerConfig, JointDiffusionConfig):
    """Noise and loss of a model of pairs."""

    given_source: float = option(
        0.0,
        "share of the training pairs whose source is given, as in generation; 0 as in the paper",
        minimum=0,
        maximum=1,
    )


@dataclass(frozen=True)
class DiffusionLMConfig(Config):
    """Section 4.1.2 of Demirag (2023); what it does not say is as in DiffuSeq."""

    data: DataConfig = section(
        DataConfig(vocabulary=30_000, normalize=True, max_source=31, max_target=30), "how texts become tokens"
    )
    model: JointTransformerConfig = section(JointTransformerConfig(embedding_dim=256), "the transformer")
    diffusion: DiffusionLMDiffusionConfig = section(
        DiffusionLMDiffusionConfig(num_timesteps=4000), "noise and loss"
    )
    optim: OptimConfig = section(
        diffuseq.DiffuSeqConfig().optim.replace(steps=600_000, max_tokens=3_968, accumulate=1),
        "the optimizer",
    )
    generation: DiffusionGenerationConfig = section(
        DiffusionGenerationConfig(steps=4000, clamp=True), "how it generates"
    )
    run: RunConfig = section(RunConfig(validation_sentences=100), "seed, hardware, logging")


_TINY = dataclasses.asdict(diffuseq.PRESETS["tiny"])
for _section, _shared in {"diffusion": JointDiffusionConfig, "model": JointTransformerConfig}.items():
    _TINY[_section] = {each.name: _TINY[_section][each.name] for each in dataclasses.fields(_shared)}

_DATES = DiffusionLMConfig().replace(_TINY)

PRESETS: dict[str, DiffusionLMConfig] = {
    "covost-de-en": DiffusionLMConfig(),
    "tiny": _DATES.replace(
        {"optim.steps": 4_500, "generation.steps": 50},
        anchor_weight=1.0,
        given_source=0.5,
        max_tokens=1_680,
        validate_every=900,
        sampling_noise_factor=0.3,
        clamp=False,
    ),
    "tiny-published": _DATES,
}


SELECTION_SETTINGS = {"noise_beam", "select", "utility", "candidate_is", "self_pair"}
"""Settings of the selection among candidates, of which a pair has only one."""


class PairDiffusionModel(DiffusionModel):
    """A diffusion model of pairs, which can generate the source, too (Diffusion-LM)."""

    layout: JointLayout

    def generate_pairs(
        self,
        count: int,
        *,
        source: str = "",
        target: str = "",
        seed: int = 0,
        batch: int = 32,
        **overrides: Any,
    ) -> list[tuple[str, str]]:
        """`count` pairs, each from its own noise; an empty template gives nothing of its text.

        The positions of the given tokens must be known, so only the last gap of the pair may be open.
        """
        self.eval()
        parse = partial(parse_whole_number, where="generate_pairs")
        count, seed, batch = parse(count, "count"), parse(seed, "seed"), parse(batch, "batch")
        if batch < 1:
            raise Problem(f"The argument batch must be at least 1 pair, not {batch}.")
        for name in sorted(overrides.keys() & SELECTION_SETTINGS):
            raise Problem(f"Every pair has one candidate, so the setting {name} has no effect: leave it out.")
        config = dataclasses.replace(
            apply_overrides(self.generation_config, overrides, origin="sample"), noise_beam=1
        )
        if config.prefix or config.suffix or config.template:
            raise Problem("Pairs take the templates source and target: set no prefix, suffix or template.")
        if config.guide:
            raise Problem("A classifier is trained on targets alone and cannot guide pairs: leave guide out.")
        given = self._pair(source, target)
        layout = PairGenerationLayout(
            **{f.name: getattr(self.layout, f.name) for f in dataclasses.fields(JointLayout)}
        )
        forbidden_mask = self.forbidden_mask.clone()
        forbidden_mask[layout.sep] = False
        usual = self.build_decoder(config)
        decoder = dataclasses.replace(
            usual,
            layout=layout,
            rounding=dataclasses.replace(usual.rounding, forbidden_mask=forbidden_mask),
            template=given,
            propose_lengths=lambda encoded: self.propose_single_length(encoded, layout.width),
            executor=EAGER,
        )
        rows: list[list[int]] = []
        for start in range(0, count, batch):
            indices = range(start, min(start + batch, count))
            decoded = decoder.decode(SourceBatch([[]] * len(indices), indices, seed))
            rows += [candidates.tokens[0] for candidates in decoded]
        cuts = [(row, row.index(layout.sep) if layout.sep in row else len(row)) for row in rows]
        sources = self.tokenizer.decode([row[:cut] for row, cut in cuts])
        return list(zip(sources, self.tokenizer.decode([row[cut + 1 :] for row, cut in cuts]), strict=True))

    def _pair(self, source: str, target: str) -> Template:
        """The given tokens of a pair, as one template over source and target."""
        first, second = (
            parse_template(text, self.tokenizer) if text else OPEN_TEMPLATE for text in (source, target)
        )
        if not target and not first.is_exact:
            given = first
        elif first.is_exact:
            given = first.concatenate(self.layout.sep, second)
        else:
            raise Problem("A target can be given only if the source's gaps have a width, such as ___{3}.")
        room = self.layout.width - 2  # without the begin and end tokens
        if not given.gaps or given.min_length > room:
            raise Problem(
                f"The given parts of the pair take {given.min_length} of {room} tokens: give fewer."
            )
        return given


def build(config: DiffusionLMConfig, tokenizer: Tokenizer) -> DiffusionModel:
    """The untrained model."""
    schedule = SCHEDULES[config.diffusion.schedule](config.diffusion.num_timesteps)
    layout = partial(InfillingLayout, given_source=config.diffusion.given_source)
    return diffuseq.build_model(config, tokenizer, layout, schedule, model_class=PairDiffusionModel)


def objective(config: DiffusionLMConfig, model: DiffusionModel) -> Objective:
    """The training objective: squared error, rounding and prior over the whole canvas."""
    schedule, diffusion = model.schedule, config.diffusion
    assert isinstance(schedule, AlphaBarSchedule)
    trained = diffusion.build_training_schedule(schedule).to(model.device)
    plain = DiffusionObjective(
        model.denoiser,
        trained,
        diffusion.build_time_sampler().to(model.device),
        terms=[
            MseLoss(),
            RoundingLoss(),
            PriorLoss(final_alpha=schedule.final_alpha),
            *diffusion.estimate_terms(),
        ],
        self_conditioning=0.0,
        z0_noise=schedule.z0_noise,
    )
    return with_noise_factor_search(plain, diffusion)


RECIPE = Recipe(
    name="diffusion-lm",
    paper="Diffusion-LM (Li et al., 2022), for pairs by Demirag (2023)",
    paper_section="3.1",
    summary="A model of pairs; sampling sets the source at each step and fills in the target.",
    presets=PRESETS,
    default_preset="covost-de-en",
    build=build,
    objective=objective,
)
