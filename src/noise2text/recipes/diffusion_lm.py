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

import torch

from noise2text.core.config import change, option
from noise2text.core.errors import Problem
from noise2text.data.layouts.joint import Infilled, Joint, Pairs
from noise2text.data.layouts.template import OPEN, Template, parse_template
from noise2text.data.ragged import Rows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.losses import Mse, Nll, Prior, Rounding, Term
from noise2text.diffusion.schedules import ends
from noise2text.diffusion.time_samplers import Uniform
from noise2text.generation.parallel import finish
from noise2text.models import Diffusion
from noise2text.models.registry import Recipe, unchanged
from noise2text.recipes import diffuseq
from noise2text.training.objective import DiffusionObjective

__all__ = ["PRESETS", "RECIPE", "DiffusionLmSettings", "PairDiffusion", "build", "objective"]


@dataclass(frozen=True)
class DiffusionLmSettings(diffuseq.JointSettings):
    """The thesis's section 4.1.2; what it leaves out is DiffuSeq's."""

    vocabulary: int = option(30_000, "how many tokens a learned BPE has")
    normalise: bool = option(
        True, "spell out umlauts and ß, strip accents, drop brackets (the thesis, 4.1.1)"
    )
    lowercase: bool = option(False, "lowercase all text")
    max_source: int = option(31, "longest source in tokens; what is longer is cut and counted")
    max_target: int = option(30, "longest target; the canvas holds both, and begin, separator and end")
    steps: int = option(600_000, "how many updates to train")
    tokens: int = option(3_968, "padded tokens of the longer side in a batch")
    accumulate: int = option(1, "micro-batches an update; each has `tokens` tokens")
    embedding: int = option(256, "d, the dimension of the diffusion")
    diffusion_steps: int = option(4000, "T, the resolution of time in training")
    generation_steps: int = option(4000, "K, the steps of generation, as the model's default")
    noise_beam: int = option(1, "candidates a sentence, as the model's default")


_SHARED = [field.name for field in dataclasses.fields(diffuseq.JointSettings)]

PRESETS: dict[str, DiffusionLmSettings] = {
    "covost-de-en": DiffusionLmSettings(),
    "tiny": DiffusionLmSettings(**{name: getattr(diffuseq.PRESETS["tiny"], name) for name in _SHARED}),
}


CHOOSING = {"noise_beam", "select", "utility", "candidate_is", "self_pair"}
"""Settings about the choice among candidates."""


class PairDiffusion(Diffusion):
    """A diffusion model of whole pairs: it can write the source, too (Diffusion-LM)."""

    layout: Joint

    def pairs(
        self,
        count: int,
        *,
        source: str = "",
        target: str = "",
        seed: int = 0,
        batch: int = 32,
        **settings: Any,
    ) -> list[tuple[str, str]]:
        """So many pairs, each from its own noise; an empty template gives nothing of its text.

        The places of what is given must be known, so that only the last gap of the pair may be open.
        """
        self.rest()
        if batch < 1:
            raise Problem(f"The batch must hold at least 1 pair, not {batch}.")
        for name in sorted(settings.keys() & CHOOSING):
            raise Problem(f"Every pair is one candidate: there is nothing for the setting {name} to choose.")
        how = dataclasses.replace(change(self.how, settings, where="sample"), noise_beam=1)
        if how.prefix or how.suffix or how.template:
            raise Problem("Pairs take the templates source and target, no prefix, suffix or template.")
        if how.guide:
            raise Problem("A guide has learned from targets alone, so it cannot steer pairs; leave it out.")
        given = self._pair(source, target)
        layout = Pairs(**{f.name: getattr(self.layout, f.name) for f in dataclasses.fields(Joint)})
        forbidden = self.forbidden.clone()
        forbidden[layout.separator] = False
        strategy = dataclasses.replace(self.strategy(how), layout=layout, forbidden=forbidden, captures=None)
        rows: list[list[int]] = []
        for start in range(0, count, batch):
            places = torch.arange(start, min(start + batch, count))
            course = strategy.course(
                layout.source(Rows.of([[]] * len(places))),
                how,
                lambda memory: self.whole(memory, layout.width),
                given=given,
                seed=seed,
                places=places,
            )
            rows += [draft.tokens[0] for draft in finish(course)]
        cuts = [(row, row.index(layout.separator) if layout.separator in row else len(row)) for row in rows]
        sources = self.tokenizer.decode([row[:cut] for row, cut in cuts])
        return list(zip(sources, self.tokenizer.decode([row[cut + 1 :] for row, cut in cuts]), strict=True))

    def _pair(self, source: str, target: str) -> Template:
        """What is given of a pair, as one template over both."""
        first, second = (parse_template(text, self.tokenizer) if text else OPEN for text in (source, target))
        if not target and not first.is_exact:
            given = first
        elif first.is_exact:
            given = first.then(self.layout.separator, second)
        else:
            raise Problem("A target can be given only where the source's gaps have a width, such as ___{3}.")
        room = self.layout.width - 2  # less the begin and the end
        if not given.gaps or given.least > room:
            raise Problem(
                f"What is given of the pair needs {given.least} of {room} places; leave some to write."
            )
        return given


def build(settings: DiffusionLmSettings, tokenizer: Tokenizer) -> Diffusion:
    """The untrained system."""
    return diffuseq.laid_out(settings, tokenizer, Infilled, PairDiffusion)


def objective(settings: DiffusionLmSettings, system: Diffusion) -> DiffusionObjective:
    """What the system is trained on: error, rounding and prior of the whole canvas."""
    blur, remains = ends(system.schedule, settings.diffusion_steps)
    terms: dict[str, Term] = {"vlb": Mse(), "rounding": Rounding(), "prior": Prior(remains=remains)}
    return DiffusionObjective(
        system.denoiser,
        settings.noised(system.schedule),
        Uniform(settings.diffusion_steps),
        terms=terms | {"nll": Nll()},
        weights=settings.weighed(terms),
        self_conditioning=0.0,
        blur=blur,
    )


RECIPE = Recipe(
    name="diffusion-lm",
    paper="Diffusion-LM (Li et al., 2022), for pairs by a thesis on DiffuSeq for translation",
    section="3.1",
    line="A model of whole pairs; the source is filled in while sampling.",
    presets=PRESETS,
    default="covost-de-en",
    resolve=unchanged,
    build=build,
    objective=objective,
)
