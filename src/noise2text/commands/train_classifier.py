"""Train a classifier for a model: labelled texts in, a folder out. It takes minutes, so it is not resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from noise2text.commands.display import Display, Quiet
from noise2text.commands.run_setup import require_free
from noise2text.core.config import change
from noise2text.core.errors import Problem
from noise2text.data.corpus import Labelled, read_labelled
from noise2text.models import Diffusion
from noise2text.models.folder import load
from noise2text.training.classifier import ClassifierSettings, Teacher, build_classifier, save_classifier

__all__ = ["train_classifier"]

TIMES = (0.1, 0.3, 0.5, 0.7, 0.9)  # at which it is validated
LOG_EVERY = 50


def train_classifier(
    model: str | Path,
    *,
    train: str,
    valid: str,
    out: str | Path,
    changes: Mapping[str, Any] | None = None,
    device: str | None = None,
    display: Display | None = None,
) -> dict[float, float]:
    """Train on the noisy texts of a model; returns the validation accuracy by time."""
    out, display = Path(out), display or Quiet()
    settings = change(ClassifierSettings(), changes or {}, where="train-classifier")
    require_free(out)
    taught, asked = read_labelled(train), read_labelled(valid)
    labels = sorted({line.label for line in taught})
    if len(labels) < 2:
        raise Problem(f"{train} has one class only, {labels[0]!r}; a classifier needs two or more.")
    system = load(model, device=device, precision="float32")
    if not isinstance(system, Diffusion):
        raise Problem(f"{model} is not a diffusion model: there is no noisy text to classify.")
    space, longest = system.denoiser.space, system.max_target
    torch.manual_seed(settings.seed)
    classifier = build_classifier(settings, space, classes=len(labels), longest=longest)
    teacher = Teacher(classifier.to(system.device), system.layout, space, system.down(system.how), settings)
    rows, answers = _encoded(system, taught, labels, train)
    held_out = _encoded(system, asked, labels, valid)
    display.say(f"{len(rows):,} texts of {len(labels)} classes")
    display.start(settings.steps)
    for step, loss in enumerate(teacher.steps(rows, answers), 1):
        if step % LOG_EVERY == 0 or step == settings.steps:
            display.progress(step, f"loss {loss:.3f}")
    accuracy = {time: teacher.accuracy(*held_out, time) for time in TIMES}
    save_classifier(out, teacher, labels)
    display.say("valid accuracy " + "  ".join(f"t={time:g} {share:.1%}" for time, share in accuracy.items()))
    display.say(f"done: the classifier is {out}")
    return accuracy


def _encoded(
    system: Diffusion, lines: Sequence[Labelled], labels: Sequence[str], path: str
) -> tuple[list[list[int]], Tensor]:
    """The tokens of each text, cut to the longest target, and the number of its class."""
    rows = [row[: system.max_target] for row in system.tokenizer.encode([line.text for line in lines])]
    for row, line in zip(rows, lines, strict=True):
        if not row:
            raise Problem(f"{path}: the text {line.text!r} has no tokens in this model; leave it out.")
        if line.label not in labels:
            raise Problem(
                f"{path}: the class {line.label!r} is not in the training file; add it or leave it out."
            )
    return rows, torch.tensor([labels.index(line.label) for line in lines])
