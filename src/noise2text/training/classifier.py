"""Teaching a classifier of noisy text, and the folder that it lives in.

It reads what generation will show it: z_t = α(t)·E[w] + σ(t)·ε at uniform times, on the canvas, by the
schedule and with the clock of one diffusion model, whose embeddings E stay as they are. So a classifier
belongs to its model; config.json says to which, by a fingerprint of E.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from noise2text.core.config import change, option, require_heads, require_least, require_share
from noise2text.core.errors import Problem
from noise2text.core.files import write_whole
from noise2text.core.random import gaussian, key, uniform
from noise2text.data.layouts.canvas import Layout
from noise2text.data.ragged import Rows
from noise2text.nn.classifier import Classifier
from noise2text.nn.denoiser import Level
from noise2text.nn.embeddings import Space
from noise2text.training.lr_schedules import cosine

__all__ = [
    "ClassifierSettings",
    "Teacher",
    "build_classifier",
    "fingerprint",
    "load_classifier",
    "save_classifier",
]

FORMAT = 1
_TRAINING, _DROPOUT, _VALIDATION = 1, 2, 3  # what a key is for


@dataclass(frozen=True)
class ClassifierSettings:
    """A small transformer and its few minutes of training."""

    width: int = option(128, "of the transformer's states")
    ffn: int = option(256, "width of the feed-forward networks")
    heads: int = option(4, "attention heads")
    layers: int = option(2, "transformer layers")
    dropout: float = option(0.1, "dropout")
    steps: int = option(1_000, "how many updates to train")
    batch: int = option(64, "texts an update")
    learning_rate: float = option(1e-3, "the peak of the learning rate")
    warmup: int = option(100, "steps over which the learning rate rises")
    seed: int = option(0, "decides initial weights, data order, noise and dropout")

    def __post_init__(self) -> None:
        require_heads(self)
        require_least(self, 1, "ffn", "layers", "steps", "batch")
        require_least(self, 0, "learning_rate", "warmup", "seed")
        require_share(self, "dropout")


def build_classifier(settings: ClassifierSettings, space: Space, *, classes: int, longest: int) -> Classifier:
    """The untrained classifier of texts of `longest` tokens, each with its end."""
    return Classifier(
        space.dim,
        classes,
        room=longest + 1,
        width=settings.width,
        ffn=settings.ffn,
        heads=settings.heads,
        layers=settings.layers,
        dropout=settings.dropout,
    )


@dataclass(frozen=True)
class Teacher:
    """The parts of a diffusion model that show a classifier noisy text."""

    classifier: Classifier
    layout: Layout
    space: Space
    schedule: nn.Module
    settings: ClassifierSettings

    def steps(self, texts: Sequence[Sequence[int]], labels: Tensor) -> Iterator[float]:
        """Train; gives the loss of each step."""
        settings, classifier = self.settings, self.classifier
        optimiser = torch.optim.AdamW(classifier.parameters(), lr=settings.learning_rate, weight_decay=0.0)
        rate = cosine(settings.warmup, settings.steps)
        for step in range(1, settings.steps + 1):
            keys = key(settings.seed, _TRAINING, step, torch.arange(settings.batch))
            chosen = (uniform(key(keys, 0)) * len(texts)).long()
            torch.manual_seed(int(key(settings.seed, _DROPOUT, step)))
            classifier.train()
            scores = self.scores([texts[i] for i in chosen.tolist()], uniform(key(keys, 1)), keys)
            loss = cross_entropy(scores, labels[chosen].to(scores.device))
            for group in optimiser.param_groups:
                group["lr"] = settings.learning_rate * rate(step)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(classifier.parameters(), 1.0)
            optimiser.step()
            yield loss.item()

    @torch.no_grad()
    def accuracy(self, texts: Sequence[Sequence[int]], labels: Tensor, time: float) -> float:
        """The share of texts, noised to a time, whose class is told rightly."""
        self.classifier.eval()
        right = 0
        for start in range(0, len(texts), 256):
            rows = texts[start : start + 256]
            keys = key(self.settings.seed, _VALIDATION, torch.arange(start, start + len(rows)))
            told = self.scores(rows, torch.full((len(rows),), time), keys).argmax(1).cpu()
            right += int((told == labels[start : start + 256]).sum())
        return right / len(texts)

    def scores(self, texts: Sequence[Sequence[int]], t: Tensor, keys: Tensor) -> Tensor:
        """What the classifier says of texts noised to the times t (B,), with the noise of their keys."""
        targets, nothing = Rows.of(texts), Rows.of([[]] * len(texts))
        canvas = self.layout.canvas(nothing, targets)
        where = self.layout.text(canvas)
        device = self.space.table.device
        with torch.no_grad():
            clean = self.space.embed(canvas.tokens.to(device)).float()
            level: Level = self.schedule(t.to(device), clean.shape[1])
            noise = gaussian(keys.to(device), 0, *clean.shape[1:])
            z = level.alpha.float() * clean + level.sigma.float() * noise
        scores: Tensor = self.classifier(z, level.clock.float(), where.to(device))
        return scores


# The folder


def fingerprint(space: Space) -> str:
    """A name for the embeddings; the same in float32 and bfloat16."""
    table = space.table.detach().to("cpu", torch.bfloat16).contiguous().view(torch.int16)
    return hashlib.sha256(table.numpy().tobytes()).hexdigest()[:16]


def save_classifier(folder: Path, teacher: Teacher, labels: Sequence[str]) -> None:
    """Write config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "format": FORMAT,
        "classifier": dataclasses.asdict(teacher.settings),
        "labels": list(labels),
        "longest": teacher.classifier.room - 1,
        "embeddings": fingerprint(teacher.space),
    }
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    write_whole(folder / "config.json", lambda path: path.write_text(text, encoding="utf-8"))
    tensors = {name: tensor.contiguous() for name, tensor in teacher.classifier.state_dict().items()}
    write_whole(folder / "model.safetensors", lambda path: save_file(tensors, path))


@torch.inference_mode(False)  # whatever the caller's mode: gradients go through the classifier
def load_classifier(folder: Path, space: Space) -> tuple[Classifier, list[str]]:
    """The classifier in a folder, beside the model's embeddings, in float32; and its classes' names."""
    path = folder / "config.json"
    if not path.exists():
        raise Problem(f"There is no classifier in {folder}; train one with `noise2text train-classifier`.")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        settings = change(ClassifierSettings(), config["classifier"], where=str(path))
        labels, longest, belongs = list(config["labels"]), int(config["longest"]), config["embeddings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Problem(
            f"{path} does not describe a classifier; train one with `noise2text train-classifier`."
        ) from error
    if belongs != fingerprint(space):
        raise Problem(
            f"The classifier in {folder} belongs to another model: it knows other embeddings; "
            f"train one for this model with `noise2text train-classifier`."
        )
    classifier = build_classifier(settings, space, classes=len(labels), longest=longest)
    try:
        classifier.load_state_dict(load_file(folder / "model.safetensors"))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise Problem(f"{folder / 'model.safetensors'} is missing or broken; copy it again.") from error
    return classifier.to(space.table.device).eval().requires_grad_(False), labels
