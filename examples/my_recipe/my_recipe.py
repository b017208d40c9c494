"""A recipe outside noise2text: Difformer with a noise schedule of its own, ᾱ(t) = (1 − t)^p.

    noise2text train power --preset tiny --train train.jsonl --valid valid.jsonl --out runs/power

A recipe has settings, presets, a function that builds the model, and a function that builds the objective of
training. This one takes everything but the schedule from Difformer. To make it yours, change one part at a
time, and run `noise2text check-recipe power` after each change.
"""

from dataclasses import dataclass

from torch import Tensor

from noise2text import (
    AlphaBarSchedule,
    LengthPredictingModel,
    Objective,
    Problem,
    Recipe,
    Rescaled,
    Tokenizer,
    option,
    section,
)
from noise2text.recipes import difformer  # whose settings this recipe extends


class PowerSchedule(AlphaBarSchedule):
    """ᾱ(t) = (1 − t)^p, from 1 (clean) to 0 (noise); α = √ᾱ and σ = √(1 − ᾱ) follow from it."""

    def __init__(self, steps: int, power: float) -> None:
        super().__init__(steps)
        self.power = power

    def alpha_bar(self, t: Tensor) -> Tensor:
        return (1 - t) ** self.power


@dataclass(frozen=True)
class PowerDiffusionConfig(difformer.DifformerDiffusionConfig):
    """The section `diffusion`: Difformer's settings and one of this recipe's, `--set power=3`."""

    power: float = option(2.0, "p of the schedule (1 − t)^p; larger is noisier", above=0)
    noise_factor: float = option(4.0, "F, multiplies the noise of training; 1 is no rescaling", above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule != "sqrt" or self.variance_preserving:  # Difformer's defaults are sqrt and false
            raise Problem(
                "This recipe has a schedule of its own: leave schedule and variance_preserving alone."
            )


@dataclass(frozen=True)
class PowerConfig(difformer.DifformerConfig):
    """All settings, in sections; the other sections are Difformer's."""

    diffusion: PowerDiffusionConfig = section(PowerDiffusionConfig(), "noise and loss")


def build(config: PowerConfig, tokenizer: Tokenizer) -> LengthPredictingModel:
    """The untrained model; `noise2text.load` calls this as well, and then loads the weights."""
    diffusion, model = config.diffusion, difformer.build(config, tokenizer)
    model.schedule = PowerSchedule(diffusion.num_timesteps, diffusion.power)  # of generation
    model.training_schedule = Rescaled(model.schedule, diffusion.noise_factor)
    return model


def objective(config: PowerConfig, model: LengthPredictingModel) -> Objective:
    """What training minimises: Difformer's terms, at the noise levels of the model's training schedule."""
    return difformer.objective(config, model)


def preset(name: str) -> PowerConfig:
    """Difformer's preset of this name, with this recipe's section `diffusion`."""
    base = difformer.PRESETS[name]
    return PowerConfig(base.data, base.model, PowerDiffusionConfig(), base.optim, base.generation, base.run)


RECIPE = Recipe(
    name="power",
    paper="My paper (2027)",
    paper_section="3",
    summary="Difformer with the noise schedule (1 − t)^p.",
    presets={name: preset(name) for name in ("iwslt14-de-en", "tiny")},  # check-recipe trains `tiny`
    default_preset="iwslt14-de-en",
    build=build,
    objective=objective,
)
