"""GPVAE (Du et al., 2022): a pre-trained encoder-decoder whose encoder states are random, for diverse texts.

    noise2text train gpvae --set from_folder=t5 --train pairs.jsonl --valid pairs.jsonl --out runs/mine
    noise2text generate runs/mine --input source.txt --scalar 2 --noises 10

The folder's network with context variables under a Gaussian-process prior between its encoder and its decoder
(`baselines/gpvae.py`); the surprise at each next token and the divergence of the posterior from the prior.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from noise2text.core.config import option, require_least
from noise2text.core.errors import Problem
from noise2text.core.random import key
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.parallel import Draft, Step
from noise2text.models import Autoregressive
from noise2text.models.baseline_config import GpvaeSettings
from noise2text.models.gpvae import Drawn, GpvaeObjective, GpvaeWriter
from noise2text.models.registry import Recipe
from noise2text.models.transformers_folder import (
    SEQUENCE,
    SequenceSettings,
    keep_architecture,
    network,
    start_from_folder,
)
from noise2text.recipes.pretrained import TINY, framed, unrecorded

__all__ = ["PRESETS", "RECIPE", "Gpvae", "GpvaeTraining", "build", "objective"]

_LATENT = 1  # what the key is for


@dataclass(frozen=True)
class GpvaeTraining(SequenceSettings):
    """The released T5 script: 10⁻⁴, constant; its kernel, with v a dimension of z."""

    kernel_v: float = option(1.0, "v, the prior's variance of each dimension of z")
    kernel_r: float = option(1e-3, "r, how far apart states still vary together; this small, they do not")
    kl: float = option(1.0, "weight of the divergence, once a sentence")
    initial: float = option(1e-4, "standard deviation of the new layers' first weights")
    scalar: float = option(2.0, "s, as the model's default; 2 in DiffuSeq's table 1")
    decay: str = option("constant", "how the learning rate falls: inverse-sqrt, linear, cosine or constant")
    warmup: int = option(0, "steps over which the learning rate rises")
    tokens: int = option(1_024, "padded tokens of the longer side in a batch")
    beam: int = option(10, "hypotheses of the beam search, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, 0, "kl", "scalar", "initial")
        if not (self.kernel_v > 0 and self.kernel_r > 0):
            raise Problem(
                f"The settings kernel_v and kernel_r must be above 0, not {self.kernel_v} and "
                f"{self.kernel_r}."
            )


_T5 = GpvaeTraining()

PRESETS: dict[str, GpvaeTraining] = {
    "t5-base": _T5,
    "tiny": dataclasses.replace(
        _T5,
        encoder_layers=2,
        decoder_layers=2,
        steps=700,
        validate_every=350,
        kernel_r=2.0,
        kl=0.1,
        initial=0.05,
        **TINY,
    ),
}


class Gpvae(Autoregressive):
    """An encoder-decoder that reads a source with noise; every noise gives the texts of one search."""

    writer: GpvaeWriter
    how: GpvaeSettings

    def drafts(
        self, rows: Sequence[Sequence[int]], how: Any, *, seed: int, places: Sequence[int], trace: bool
    ) -> list[Draft]:
        several = [row for row in rows for _ in range(how.noises)]
        own = key(torch.tensor(places)[:, None], torch.arange(how.noises)).flatten()  # (B·N,)
        drawn = Drawn(self.writer, key(seed, _LATENT, own).to(self.device), scalar=how.scalar)
        drafts = self.decode(drawn, several, how, seed=seed, places=own.tolist(), trace=trace)
        return [joined(drafts[at : at + how.noises]) for at in range(0, len(drafts), how.noises)]


def joined(drafts: Sequence[Draft]) -> Draft:
    """The candidates of several drafts of one sentence; those that are done wait for the others."""
    count = max(len(draft.steps) for draft in drafts)
    steps = []
    for number in range(count):
        now = [draft.steps[min(number, len(draft.steps) - 1)] for draft in drafts]
        noisy, clean = ([row for step in now for row in getattr(step, name)] for name in ("noisy", "clean"))
        steps.append(Step(1 - number / max(1, count - 1), noisy, clean))
    return Draft(
        [row for draft in drafts for row in draft.tokens],
        [score for draft in drafts for score in draft.scores],
        steps,
    )


def build(settings: GpvaeTraining, tokenizer: Tokenizer) -> Gpvae:
    """The untrained system."""
    writer = GpvaeWriter(
        network(SEQUENCE, settings, tokenizer),
        variance=settings.kernel_v,
        scale=settings.kernel_r,
        initial=settings.initial,
    )
    how = GpvaeSettings(beam=settings.beam, length_penalty=settings.length_penalty, scalar=settings.scalar)
    return unrecorded(Gpvae(tokenizer, writer=writer, how=how, **framed(settings, tokenizer)))


def start(settings: GpvaeTraining, system: Gpvae) -> None:
    """Give the encoder-decoder the weights of the folder; the layers between start small."""
    start_from_folder(SEQUENCE, settings, system.writer.inner)


def objective(settings: GpvaeTraining, system: Gpvae) -> GpvaeObjective:
    """What the system is trained on: each next token, and the posterior's distance from the prior."""
    return GpvaeObjective(
        system.writer,
        bos=system.tokenizer.bos,
        label_smoothing=settings.label_smoothing,
        kl=settings.kl,
    )


RECIPE = Recipe(
    name="gpvae",
    paper="GPVAE (Du et al., 2022), in DiffuSeq",
    section="D.2",
    line="A pre-trained encoder-decoder with a Gaussian-process prior over its encoder states.",
    presets=PRESETS,
    default="t5-base",
    resolve=keep_architecture(SEQUENCE),
    build=build,
    objective=objective,
    start=start,
)
