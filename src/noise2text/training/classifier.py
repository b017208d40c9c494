"""Training a classifier of noisy text, and its folder.

The classifier reads what it will read during generation: z_t = α(t)·E[w] + σ(t)·ε at uniform times, with the
layout, the schedule and the fixed embeddings E of one diffusion model. So a classifier belongs to its model;
config.json holds a fingerprint of E.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from noise2text.core.allocation_limit import AllocationLimit
from noise2text.core.config import Config, apply_overrides, option
from noise2text.core.errors import Problem
from noise2text.core.files import write_files_together
from noise2text.core.json_files import read_json_object
from noise2text.core.random import KeyPurpose, gaussian_noise, make_key, uniform
from noise2text.core.weights_file import open_weights, save_weights
from noise2text.data.layouts.base import Layout
from noise2text.data.ragged import RaggedRows
from noise2text.diffusion.schedules import Schedule
from noise2text.nn.classifier import Classifier
from noise2text.nn.config import require_divisible_heads
from noise2text.nn.denoiser import NoiseLevel
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.layers import LayerShape
from noise2text.training.lr_schedules import cosine

__all__ = [
    "ClassifierConfig",
    "ClassifierTrainer",
    "build_classifier",
    "fingerprint_embeddings",
    "load_classifier",
    "save_classifier",
]

FORMAT = 2  # 1 was that of versions before 0.2 (models/convert.py)


class _RowKeyPurpose(IntEnum):
    """What the key of a training row decides, next to its noise."""

    TEXT = 0
    TIME = 1


@dataclass(frozen=True)
class ClassifierConfig(Config):
    """A small Transformer and its training of a few minutes."""

    model_dim: int = option(128, "dimension of the hidden states", minimum=1)
    ffn_dim: int = option(256, "width of the feed-forward networks", minimum=1)
    heads: int = option(4, "attention heads", minimum=1)
    layers: int = option(2, "transformer layers", minimum=1)
    dropout: float = option(0.1, "dropout", minimum=0, maximum=1)
    steps: int = option(1_000, "how many updates to train", minimum=1)
    batch_size: int = option(64, "texts per update", minimum=1)
    lr: float = option(1e-3, "the peak of the learning rate", minimum=0)
    warmup: int = option(100, "steps over which the learning rate rises", minimum=0)
    seed: int = option(0, "decides initial weights, data order, noise and dropout", minimum=0)

    def __post_init__(self) -> None:
        require_divisible_heads(self)


def build_classifier(
    config: ClassifierConfig, embedding: TokenEmbedding, *, classes: int, max_length: int
) -> Classifier:
    """The untrained classifier of texts of up to `max_length` tokens and an end token."""
    return Classifier(
        embedding.dim,
        classes,
        LayerShape.from_config(config),
        max_positions=max_length + 1,
        layers=config.layers,
    )


@dataclass(frozen=True)
class ClassifierTrainer:
    """A classifier and the parts of a diffusion model that make noisy texts for it."""

    classifier: Classifier
    layout: Layout
    embedding: TokenEmbedding
    schedule: Schedule
    config: ClassifierConfig

    def train_steps(self, texts: Sequence[Sequence[int]], labels: Tensor) -> Iterator[float]:
        """Train, and yield the loss of each step."""
        config, classifier = self.config, self.classifier
        optimizer = torch.optim.AdamW(classifier.parameters(), lr=config.lr, weight_decay=0.0)
        lr_schedule = cosine(config.warmup, config.steps)
        for step in range(1, config.steps + 1):
            keys = make_key(config.seed, KeyPurpose.TRAINING, step, torch.arange(config.batch_size))
            indices = (uniform(make_key(keys, _RowKeyPurpose.TEXT)) * len(texts)).long()
            torch.manual_seed(int(make_key(config.seed, KeyPurpose.DROPOUT, step)))
            classifier.train()
            noisy_logits = self.noisy_logits(
                [texts[i] for i in indices.tolist()], uniform(make_key(keys, _RowKeyPurpose.TIME)), keys
            )
            loss = cross_entropy(noisy_logits, labels[indices].to(noisy_logits.device))
            for param_group in optimizer.param_groups:
                param_group["lr"] = config.lr * lr_schedule(step)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(classifier.parameters(), 1.0)
            optimizer.step()
            yield loss.item()

    @torch.no_grad()
    def accuracy(self, texts: Sequence[Sequence[int]], labels: Tensor, time: float) -> float:
        """The share of texts, noised to a time, that are classified correctly."""
        self.classifier.eval()
        num_correct = 0
        for start in range(0, len(texts), 256):
            rows = texts[start : start + 256]
            keys = make_key(self.config.seed, KeyPurpose.VALIDATION, torch.arange(start, start + len(rows)))
            predicted = self.noisy_logits(rows, torch.full((len(rows),), time), keys).argmax(1).cpu()
            num_correct += int((predicted == labels[start : start + 256]).sum())
        return num_correct / len(texts)

    def noisy_logits(self, texts: Sequence[Sequence[int]], t: Tensor, keys: Tensor) -> Tensor:
        """The logits of texts noised to the times t (B,), with the noise of their keys; (B, classes)."""
        targets, empty_sources = RaggedRows.from_lists(texts), RaggedRows.from_lists([[]] * len(texts))
        canvas = self.layout.make_canvas(empty_sources, targets)
        text_mask = self.layout.target_mask(canvas)
        device = self.embedding.weight.device
        with torch.no_grad():
            embeddings = self.embedding.embed(canvas.tokens.to(device)).float()
            level: NoiseLevel = self.schedule(t.to(device), embeddings.shape[1])
            noise = gaussian_noise(keys.to(device), 0, *embeddings.shape[1:])
            z = level.add_noise(embeddings, noise)
        noisy_logits: Tensor = self.classifier(z, level.timestep.float(), text_mask.to(device))
        return noisy_logits


def fingerprint_embeddings(embedding: TokenEmbedding) -> str:
    """A hash of the embeddings; the same in float32 and bfloat16."""
    weight_bits = embedding.weight.detach().to("cpu", torch.bfloat16).contiguous().view(torch.int16)
    return hashlib.sha256(weight_bits.numpy().tobytes()).hexdigest()[:16]


def save_classifier(folder: Path, trainer: ClassifierTrainer, labels: Sequence[str]) -> None:
    """Write config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    saved = {
        "format": FORMAT,
        "classifier": dataclasses.asdict(trainer.config),
        "labels": list(labels),
        "longest": trainer.classifier.max_positions - 1,
        "embeddings": fingerprint_embeddings(trainer.embedding),
    }
    text = json.dumps(saved, indent=2, ensure_ascii=False) + "\n"
    tensors = trainer.classifier.state_dict()
    write_files_together(
        {
            folder / "config.json": lambda path: path.write_text(text, encoding="utf-8"),
            folder / "model.safetensors": lambda path: save_weights(path, tensors),
        }
    )


@torch.inference_mode(False)  # whatever the caller's mode: gradients go through the classifier
def load_classifier(folder: Path, embedding: TokenEmbedding) -> tuple[Classifier, list[str]]:
    """The classifier in a folder, in float32 on the embeddings' device, and the names of its classes."""
    path = folder / "config.json"
    if not path.exists():
        raise Problem(f"There is no classifier in {folder}; train one with `noise2text train-classifier`.")
    saved = read_json_object(path)
    try:
        if saved["format"] != FORMAT:
            raise Problem(_explain_format(folder, saved["format"]))
        config = apply_overrides(ClassifierConfig(), saved["classifier"], origin=str(path))
        labels, max_length = list(map(str, saved["labels"])), int(saved["longest"])
        expected_fingerprint = saved["embeddings"]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise Problem(
            f"{path} does not describe a classifier; train one with `noise2text train-classifier`."
        ) from error
    if expected_fingerprint != fingerprint_embeddings(embedding):
        raise Problem(
            f"The classifier in {folder} belongs to another model: its embeddings differ; "
            f"train one for this model with `noise2text train-classifier`."
        )
    with open_weights(folder / "model.safetensors") as weights:
        try:
            with AllocationLimit(weights.num_elements, len(weights.specs), str(path)):
                classifier = build_classifier(config, embedding, classes=len(labels), max_length=max_length)
            classifier.load_state_dict(weights.read())
        except RuntimeError as error:
            raise Problem(f"{weights.path} does not fit its config.json; copy it again.") from error
    return classifier.to(embedding.weight.device).eval().requires_grad_(False), labels


def _explain_format(folder: Path, found: object) -> str:
    """Why a classifier of another format is not read, and what to do."""
    if found == 1:
        return (
            f"The classifier in {folder} was written by an older version: `noise2text convert {folder} NEW` "
            "writes it in today's format."
        )
    return f"The classifier in {folder} has format {found}, not {FORMAT}: was it written by a newer version?"
