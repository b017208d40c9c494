"""Train a classifier of noisy texts for a diffusion model. It takes minutes, so it cannot be resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from noise2text.commands.display import Display, SilentDisplay
from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem
from noise2text.core.files import require_empty, write_folder_atomically
from noise2text.core.locks import lock_output
from noise2text.data.corpus import LabeledText, read_labeled
from noise2text.models import DiffusionModel
from noise2text.models.folder import load
from noise2text.training.classifier import (
    ClassifierConfig,
    ClassifierTrainer,
    build_classifier,
    save_classifier,
)

__all__ = ["train_classifier"]

VALIDATION_TIMES = (0.1, 0.3, 0.5, 0.7, 0.9)  # times at which the accuracy is measured
LOG_EVERY = 50


def train_classifier(
    model_folder: str | Path,
    *,
    train: str,
    valid: str,
    out: str | Path,
    changes: Mapping[str, Any] | None = None,
    device: str | None = None,
    display: Display | None = None,
) -> dict[float, float]:
    """The validation accuracy by time of the classifier, which is now in the folder `out`."""
    out, display = Path(out), display or SilentDisplay()
    config = apply_overrides(ClassifierConfig(), changes or {}, origin="train-classifier")
    with lock_output(out):
        require_empty(out)
        accuracy = _train(model_folder, train, valid, out, config, device=device, display=display)
    shown = "  ".join(f"t={time:g} {share:.1%}" for time, share in accuracy.items())
    display.show_line(f"valid accuracy {shown}")
    display.show_line(f"done: the classifier is in {out}")
    return accuracy


def _train(
    model_folder: str | Path,
    train: str,
    valid: str,
    out: Path,
    config: ClassifierConfig,
    *,
    device: str | None,
    display: Display,
) -> dict[float, float]:
    """The validation accuracy by time, after the classifier has been trained and written whole."""
    train_lines, valid_lines = read_labeled(train), read_labeled(valid)
    labels = sorted({line.label for line in train_lines})
    if len(labels) < 2:
        raise Problem(f"{train} has only one class, {labels[0]!r}; a classifier needs two or more.")
    model = load(model_folder, device=device, precision="float32")
    if not isinstance(model, DiffusionModel):
        raise Problem(f"{model_folder} is not a diffusion model, so it has no noisy texts to classify.")
    embedding, max_length = model.denoiser.embedding, model.max_target
    torch.manual_seed(config.seed)
    classifier = build_classifier(config, embedding, classes=len(labels), max_length=max_length)
    trainer = ClassifierTrainer(
        classifier.to(model.device),
        model.layout,
        embedding,
        model.build_sampling_schedule(model.generation_config),
        config,
    )
    rows, targets = _encode(model, train_lines, labels, train)
    valid_data = _encode(model, valid_lines, labels, valid)
    display.show_line(f"{len(rows):,} texts of {len(labels)} classes")
    display.start(config.steps)
    for step, loss in enumerate(trainer.train_steps(rows, targets), 1):
        if step % LOG_EVERY == 0 or step == config.steps:
            display.progress(step, f"loss {loss:.3f}")
    accuracy = {time: trainer.accuracy(*valid_data, time) for time in VALIDATION_TIMES}
    with write_folder_atomically(out) as draft:
        save_classifier(draft, trainer, labels)
    return accuracy


def _encode(
    model: DiffusionModel, lines: Sequence[LabeledText], labels: Sequence[str], path: str
) -> tuple[list[list[int]], Tensor]:
    """The tokens of each text, truncated to the longest target, and the index of its class."""
    rows = [row[: model.max_target] for row in model.tokenizer.encode([line.text for line in lines])]
    for row, line in zip(rows, lines, strict=True):
        if not row:
            raise Problem(f"{path}: the text {line.text!r} has no tokens in this model; remove it.")
        if line.label not in labels:
            raise Problem(
                f"{path}: the class {line.label!r} is not in the training file; add it or remove it."
            )
    return rows, torch.tensor([labels.index(line.label) for line in lines])
