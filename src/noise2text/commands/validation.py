"""How good a model is on the validation set: by loss, with fixed noise, and by BLEU of what it generates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from noise2text.commands.run_data import Data
from noise2text.core.random import key, uniform
from noise2text.data.corpus import Pair
from noise2text.data.layouts.canvas import Canvas
from noise2text.diffusion.anisotropy import anisotropy
from noise2text.metrics.metrics import bleu, exact_match
from noise2text.models import Diffusion, System
from noise2text.training.config import TrainingSettings
from noise2text.training.loop import evaluate_loss
from noise2text.training.objective import Objective

__all__ = ["Validation", "judge"]


def judge(system: System, pairs: Sequence[Pair], *, seed: int = 0) -> dict[str, float]:
    """BLEU and exact match in percent of what a system makes of the pairs' sources."""
    made = system.generate([pair.src for pair in pairs], seed=seed, batch=64)
    references = [(pair.trg, *pair.refs) for pair in pairs]
    return {
        "bleu": bleu(made.texts, references).score,
        "exact": exact_match(made.texts, references).score,
    }


class Validation:
    """Scores a system on the first `validation_sentences` pairs, the same way each time."""

    def __init__(
        self,
        objective: Objective,
        system: System,
        data: Data,
        settings: TrainingSettings,
        *,
        autocast: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self.objective, self.system, self.data, self.settings = objective, system, data, settings
        self.autocast = autocast

    def __call__(self) -> dict[str, float]:
        """The loss and its terms, BLEU and exact match in percent, and the anisotropy of the embeddings."""
        with self.autocast():
            scores = evaluate_loss(self.objective, self._canvases(), seed=self.settings.seed)
            return scores | judge(self.system, self.data.sample, seed=self.settings.seed) | self._collapse()

    def _collapse(self) -> dict[str, float]:
        """The anisotropy of a diffusion model's embeddings; nothing of what has no such space."""
        if not isinstance(self.system, Diffusion):
            return {}
        return {"anisotropy": anisotropy(self.system.denoiser.space.embeddings)}

    def _canvases(self) -> list[Canvas]:
        valid = self.data.valid
        count = min(len(valid), self.settings.validation_sentences)
        order = np.argsort(valid.lengths[:count].max(axis=1), kind="stable")
        rows = max(1, self.settings.tokens // int(valid.lengths[:count].max()))
        layout, seed, canvases = self.system.layout, self.settings.seed, []
        for start in range(0, count, rows):
            chosen = order[start : start + rows]
            u = uniform(key(seed, torch.from_numpy(chosen)))
            canvases.append(layout.vary(layout.canvas(*valid.pairs(chosen)), u).to(self.system.device))
        return canvases
