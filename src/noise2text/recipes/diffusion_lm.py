"""Diffusion-LM by infilling (Li et al., 2022; for pairs: thesis on DiffuSeq for translation, section 3.1).

    noise2text train diffusion-lm --train pairs.jsonl --valid pairs.jsonl --out runs/mine

The canvas, the transformer, the terms and the schedule are DiffuSeq's; but training noises the whole canvas,
source included, at uniform times (a model of pairs), and only sampling holds the source at each step
(algorithm 7).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from noise2text.core.config import apply_overrides, option
from noise2text.core.errors import Problem
from noise2text.data.layouts.joint import InfillingLayout, JointLayout, PairGenerationLayout
from noise2text.data.layouts.template import OPEN_TEMPLATE, Template, parse_template
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.losses import LossTerm, MseLoss, NllLoss, PriorLoss, RoundingLoss
from noise2text.diffusion.schedules import z0_noise_and_final_alpha
from noise2text.diffusion.time_samplers import UniformTimes
from noise2text.generation.candidates import SourceBatch
from noise2text.generation.runner import EAGER
from noise2text.models import DiffusionModel
from noise2text.models.registry import Recipe, keep_config
from noise2text.recipes import diffuseq
from noise2text.training.objective import DiffusionObjective

__all__ = ["PRESETS", "RECIPE", "DiffusionLMConfig", "PairDiffusionModel", "build", "objective"]


@dataclass(frozen=True)
class DiffusionLMConfig(diffuseq.JointConfig):
    """The thesis's section 4.1.2; what it leaves out is DiffuSeq's."""

    vocabulary: int = option(30_000, "how many tokens a learned BPE has")
    normalise: bool = option(
        True, "spell out umlauts and ß, strip accents, drop brackets (the thesis, 4.1.1)"
    )
    lowercase: bool = option(False, "lowercase all text")
    max_source: int = option(31, "longest source in tokens; what is longer is cut and counted")
    max_target: int = option(30, "longest target; the canvas holds both, and begin, separator and end")
    steps: int = option(600_000, "how many updates to train")
    max_tokens: int = option(3_968, "padded tokens of the longer side in a batch")
    accumulate: int = option(1, "micro-batches an update; each has `tokens` tokens")
    embedding_dim: int = option(256, "d, the dimension of the diffusion")
    diffusion_steps: int = option(4000, "T, the resolution of time in training")
    generation_steps: int = option(4000, "K, the steps of generation, as the model's default")
    noise_beam: int = option(1, "candidates a sentence, as the model's default")


_SHARED_FIELDS = [field.name for field in dataclasses.fields(diffuseq.JointConfig)]

PRESETS: dict[str, DiffusionLMConfig] = {
    "covost-de-en": DiffusionLMConfig(),
    "tiny": DiffusionLMConfig(**{name: getattr(diffuseq.PRESETS["tiny"], name) for name in _SHARED_FIELDS}),
}


SELECTION_SETTINGS = {"noise_beam", "select", "utility", "candidate_is", "self_pair"}
"""Settings about the choice among candidates."""


class PairDiffusionModel(DiffusionModel):
    """A diffusion model of whole pairs: it can write the source, too (Diffusion-LM)."""

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
        """So many pairs, each from its own noise; an empty template gives nothing of its text.

        The places of what is given must be known, so that only the last gap of the pair may be open.
        """
        self.ensure_eval()
        if batch < 1:
            raise Problem(f"The batch must hold at least 1 pair, not {batch}.")
        for name in sorted(overrides.keys() & SELECTION_SETTINGS):
            raise Problem(f"Every pair is one candidate: there is nothing for the setting {name} to choose.")
        config = dataclasses.replace(
            apply_overrides(self.generation_config, overrides, origin="sample"), noise_beam=1
        )
        if config.prefix or config.suffix or config.template:
            raise Problem("Pairs take the templates source and target, no prefix, suffix or template.")
        if config.guide:
            raise Problem("A guide has learned from targets alone, so it cannot steer pairs; leave it out.")
        given = self._pair(source, target)
        layout = PairGenerationLayout(
            **{f.name: getattr(self.layout, f.name) for f in dataclasses.fields(JointLayout)}
        )
        forbidden = self.forbidden.clone()
        forbidden[layout.sep] = False
        decoder = dataclasses.replace(
            self.build_decoder(config),
            layout=layout,
            forbidden=forbidden,
            template=given,
            propose_lengths=lambda encoded: self.propose_single_length(encoded, layout.width),
            runner=EAGER,
        )
        rows: list[list[int]] = []
        for start in range(0, count, batch):
            indices = range(start, min(start + batch, count))
            decoded = decoder.decode(SourceBatch([[]] * len(indices), indices), seed=seed)
            rows += [candidates.tokens[0] for candidates in decoded]
        cuts = [(row, row.index(layout.sep) if layout.sep in row else len(row)) for row in rows]
        sources = self.tokenizer.decode([row[:cut] for row, cut in cuts])
        return list(zip(sources, self.tokenizer.decode([row[cut + 1 :] for row, cut in cuts]), strict=True))

    def _pair(self, source: str, target: str) -> Template:
        """What is given of a pair, as one template over both."""
        first, second = (
            parse_template(text, self.tokenizer) if text else OPEN_TEMPLATE for text in (source, target)
        )
        if not target and not first.is_exact:
            given = first
        elif first.is_exact:
            given = first.concatenate(self.layout.sep, second)
        else:
            raise Problem("A target can be given only where the source's gaps have a width, such as ___{3}.")
        room = self.layout.width - 2  # less the begin and the end
        if not given.gaps or given.min_length > room:
            raise Problem(
                f"What is given of the pair needs {given.min_length} of {room} places; leave some to write."
            )
        return given


def build(config: DiffusionLMConfig, tokenizer: Tokenizer) -> DiffusionModel:
    """The untrained system."""
    return diffuseq.build_with_layout(config, tokenizer, InfillingLayout, PairDiffusionModel)


def objective(config: DiffusionLMConfig, model: DiffusionModel) -> DiffusionObjective:
    """What the system is trained on: error, rounding and prior of the whole canvas."""
    z0_noise, final_alpha = z0_noise_and_final_alpha(model.schedule, config.diffusion_steps)
    terms: dict[str, LossTerm] = {
        "vlb": MseLoss(),
        "rounding": RoundingLoss(),
        "prior": PriorLoss(final_alpha=final_alpha),
    }
    return DiffusionObjective(
        model.denoiser,
        config.training_schedule(model.schedule),
        UniformTimes(config.diffusion_steps),
        terms=terms | {"nll": NllLoss()},
        weights=config.loss_weights(terms),
        self_conditioning=0.0,
        z0_noise=z0_noise,
    )


RECIPE = Recipe(
    name="diffusion-lm",
    paper="Diffusion-LM (Li et al., 2022), for pairs by a thesis on DiffuSeq for translation",
    section="3.1",
    summary="A model of whole pairs; the source is filled in while sampling.",
    presets=PRESETS,
    default_preset="covost-de-en",
    resolve=keep_config,
    build=build,
    objective=objective,
)
