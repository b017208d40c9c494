"""The best validated weights of a run: the best in its folder, and the best few, averaged at the end."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem
from noise2text.core.json_files import read_ordinary_file
from noise2text.core.weights_file import read_weights
from noise2text.models.model_files import (
    CONFIG_FILE,
    GENERATION_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    write_model_files,
)
from noise2text.training import checkpoint
from noise2text.training.averaging import average_states

__all__ = ["BestModels", "average_models"]


class BestModels:
    """Keeps the models of the best validations in the run's folder.

    Args:
        out: the run's folder.
        best_by: the score that decides, bleu or loss.
        count: how many models are averaged at the end.
        write_model: writes the present weights to a folder.
    """

    def __init__(self, out: Path, *, best_by: str, count: int, write_model: Callable[[Path], None]) -> None:
        self.out, self.best_by, self.count, self._write_model = out, best_by, count, write_model
        self.best: list[tuple[float, float, int]] = []  # (score, loss, step), best first

    @property
    def best_step(self) -> int:
        """The step of the best validation; 0 if there was none."""
        return self.best[0][-1] if self.best else 0

    @property
    def best_score(self) -> float:
        """The deciding score of the best validation; NaN if there was none."""
        return abs(self.best[0][0]) if self.best else math.nan

    def add(self, step: int, scores: Mapping[str, float]) -> None:
        """Write the present weights where they belong to the best."""
        score = scores["bleu"] if self.best_by == "bleu" else -scores["loss"]
        if not math.isfinite(score):
            return
        scored = [*self.best, (score, scores["loss"], step)]
        # If scores are equal, as BLEU is for single words, the loss decides.
        self.best = sorted(scored, key=lambda each: (-each[0], each[1], each[2]))[: self.count]
        if self.best_step == step:
            self._write_model(self.out)
        if self.count > 1 and step in self._steps():
            self._write_model(self._folder(step))

    def average(self) -> None:
        """Replace the model in the run's folder by the average of the best few, if more than one is kept."""
        if self.count > 1 and self.best:
            average_models(list(map(self._folder, self._steps())), self.out)

    def restore(self, saved: list[Any]) -> None:
        """Go on with the list that a checkpoint holds."""
        self.best = [(score, *(loss or [math.inf]), step) for score, *loss, step in saved]

    def leave_out_damaged(self) -> list[Problem]:
        """What is wrong with models that were to be averaged and cannot be read; they are left out."""
        problems = []
        for entry in list(self.best) if self.count > 1 else []:
            try:
                read_weights(self._folder(entry[-1]) / WEIGHTS_FILE)
            except Problem as problem:
                self.best.remove(entry)
                problems.append(problem)
        return problems

    def remove_unused(self) -> None:
        """Remove the models that will not be averaged, once no checkpoint lists them any more."""
        listed = [
            checkpoint.read_progress(folder)["best"] for folder in checkpoint.list_checkpoints(self.out)
        ]
        steps = {int(step) for best in (self.best, *listed) for *_, step in best}
        wanted = set(map(self._folder, steps))
        for folder in (self.out / "best_models").glob("[0-9]" * 8):
            if folder not in wanted:
                shutil.rmtree(folder, ignore_errors=True)

    def _steps(self) -> list[int]:
        return [step for *_, step in self.best]

    def _folder(self, step: int) -> Path:
        """The folder of a model that will be averaged."""
        return self.out / "best_models" / f"{step:08d}"


def average_models(folders: Sequence[Path], out: Path) -> None:
    """Write the mean of the folders' weights to `out`, with the other files of the first folder."""
    states = [read_weights(folder / WEIGHTS_FILE) for folder in folders]
    if len({str({name: value.shape for name, value in state.items()}) for state in states}) != 1:
        raise Problem(
            f"{folders[0]} and the others differ in shape and cannot be averaged: name models of one run."
        )
    names = (CONFIG_FILE, GENERATION_FILE, TOKENIZER_FILE)
    write_model_files(
        out, average_states(states), {name: read_ordinary_file(folders[0] / name) for name in names}
    )
