"""Diffusion-LM by infilling (Li et al., 2022; for pairs: thesis on DiffuSeq for translation, section 3.1).

    noise2text train diffusion-lm --train pairs.jsonl --valid pairs.jsonl --out runs/mine

The canvas, the transformer, the terms and the schedule are DiffuSeq's; but training noises the whole canvas,
source included, at uniform times (a model of pairs), and only sampling holds the source at each step
(algorithm 7).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from noise2text.diffusion.losses import Mse, Nll, Prior, Rounding, Term
from noise2text.diffusion.times import Uniform
from noise2text.recipes import diffuseq
from noise2text.recipes.recipe import Recipe
from noise2text.settings import option
from noise2text.system import Diffusion
from noise2text.text.joint import Infilled
from noise2text.text.tokenizer import Tokenizer
from noise2text.training.objective import DiffusionObjective

__all__ = ["PRESETS", "RECIPE", "DiffusionLmSettings", "build", "objective"]


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


def build(settings: DiffusionLmSettings, tokenizer: Tokenizer) -> Diffusion:
    """The untrained system."""
    return diffuseq.build(settings, tokenizer, Infilled)


def objective(settings: DiffusionLmSettings, system: Diffusion) -> DiffusionObjective:
    """What the system is trained on: error, rounding and prior of the whole canvas."""
    blur, remains = diffuseq.ends(system.schedule, settings.diffusion_steps)
    terms: dict[str, Term] = {"vlb": Mse(), "rounding": Rounding(), "prior": Prior(remains=remains)}
    return DiffusionObjective(
        system.denoiser,
        system.schedule,
        Uniform(settings.diffusion_steps),
        terms=terms | {"nll": Nll()},
        weights=dict.fromkeys(terms, 1.0),
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
    resolve=diffuseq.resolve,
    build=build,
    objective=objective,
)
