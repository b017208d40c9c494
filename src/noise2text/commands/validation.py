"""Scores on the validation set: the loss with fixed noise, and BLEU of generated texts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from noise2text.commands.run_data import TrainingData
from noise2text.core.random import make_key, uniform
from noise2text.data.corpus import Pair
from noise2text.data.layouts.base import Canvas
from noise2text.diffusion.anisotropy import anisotropy
from noise2text.metrics.evaluate import bleu, exact_match
from noise2text.models import DiffusionModel, Model
from noise2text.training.loop import evaluate_loss
from noise2text.training.objective import Objective

__all__ = ["Validator", "score_generations"]


def score_generations(model: Model, pairs: Sequence[Pair], *, seed: int = 0) -> dict[str, float]:
    """BLEU and exact match, in percent, of the texts that a model generates for the sources."""
    output = model.generate([pair.src for pair in pairs], seed=seed, batch=64)
    references = [pair.references for pair in pairs]
    return {
        "bleu": bleu(output.texts, references).score,
        "exact": exact_match(output.texts, references).score,
    }


class Validator:
    """Scores a model on the first `validation_sentences` pairs, with the same noise each time."""

    def __init__(
        self,
        objective: Objective,
        model: Model,
        data: TrainingData,
        config: Any,
        *,
        autocast: AbstractContextManager[Any],
    ) -> None:
        self.objective, self.model, self.data, self.config = objective, model, data, config
        self.autocast = autocast

    def __call__(self) -> dict[str, float]:
        """The loss and its terms, BLEU and exact match in percent, and the anisotropy of the embeddings."""
        with self.autocast:
            scores = evaluate_loss(self.objective, self._canvases(), seed=self.config.run.seed)
            return (
                scores
                | score_generations(self.model, self.data.validation_pairs, seed=self.config.run.seed)
                | self._measure_anisotropy()
            )

    def _measure_anisotropy(self) -> dict[str, float]:
        """The anisotropy of a diffusion model's embeddings; empty for other models."""
        if not isinstance(self.model, DiffusionModel):
            return {}
        return {"anisotropy": anisotropy(self.model.denoiser.embedding.vectors)}

    def _canvases(self) -> list[Canvas]:
        valid = self.data.valid
        count = min(len(valid), self.config.run.validation_sentences)
        order = np.argsort(valid.lengths[:count].max(axis=1), kind="stable")
        rows = max(1, self.config.optim.max_tokens // int(valid.lengths[:count].max()))
        layout, seed, canvases = self.model.layout, self.config.run.seed, []
        for start in range(0, count, rows):
            chosen = order[start : start + rows]
            u = uniform(make_key(seed, torch.from_numpy(chosen)))
            canvases.append(
                layout.randomize(layout.make_canvas(*valid.get_pairs(chosen)), u).to(self.model.device)
            )
        return canvases
