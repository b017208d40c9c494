"""The embeddings: nearest neighbors, and how far the table has collapsed (Difformer, 3.1).

Training moves the embeddings. If the loss can be lowered by moving all of them together, they collapse: the
mean cosine of two tokens (anisotropy, `diffusion/anisotropy.py`) goes to 1. Each validation logs it, so the
curve comes from metrics.jsonl, or else from the models that the run saved (`best_models/`, `checkpoint-…`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from noise2text.analysis.curves import read_metrics
from noise2text.analysis.finding import Finding, ResultRow, draw_lines
from noise2text.analysis.generation import load_all, require_diffusion
from noise2text.analysis.inputs import Inputs
from noise2text.core.config import Config, option
from noise2text.core.errors import Problem
from noise2text.diffusion.anisotropy import anisotropy
from noise2text.models import DiffusionModel, Model
from noise2text.models.folder import load

__all__ = [
    "EmbeddingOptions",
    "analyze_embeddings",
    "anisotropy_curves",
    "anisotropy_of_run",
    "nearest_rows",
    "neighbors",
]


@dataclass(frozen=True)
class EmbeddingOptions(Config):
    """Which tokens are shown."""

    tokens: str = option("", "tokens, separated by blanks; by default ten of the vocabulary")
    count: int = option(5, "neighbors per token", minimum=1)


def analyze_embeddings(inputs: Inputs, options: EmbeddingOptions) -> list[Finding]:
    """The analysis `embeddings`: neighbors in each model, and anisotropy over the steps of each run."""
    models = load_all(inputs, precision="float32")
    return [
        neighbors(models, tokens=options.tokens.split(), count=options.count),
        anisotropy_curves(inputs.folders_by_name(), device=inputs.device),
    ]


def neighbors(models: Mapping[str, Model], *, tokens: Sequence[str] = (), count: int = 5) -> Finding:
    """The nearest neighbors of some tokens in each model, by distance, with the cosine."""
    rows: list[ResultRow] = []
    for name, loaded in models.items():
        model = require_diffusion(loaded, name, wanted="The embedding space")
        vocabulary = _Vocabulary.of(model)
        for token in vocabulary.find_tokens(tokens, name):
            rows += [{"model": name} | row for row in vocabulary.neighbor_rows(token, count)]
    return Finding(
        name="neighbors",
        title="The nearest neighbors of some tokens",
        paper_figure="Difformer, section 3.1",
        rows=rows,
        signature="distance:euclidean|cosine:of the angle at the origin|specials:left out",
    )


def nearest_rows(table: Tensor, row: int, count: int, *, among: Tensor) -> Tensor:
    """The indices of the `count` rows nearest to `row`, nearest first, out of those where `among` is true."""
    distances = (table - table[row]).norm(dim=1).masked_fill(~among, torch.inf)
    distances[row] = torch.inf
    left = int(distances.isfinite().sum())
    return distances.argsort(stable=True)[: min(count, left)]


@dataclass(frozen=True)
class _Vocabulary:
    """A model's tokens: their texts, which of them are not special, and their embeddings."""

    token_texts: Sequence[str]
    plain: Tensor  # (V,), false for special tokens
    table: Tensor  # (V, d)

    @classmethod
    def of(cls, model: DiffusionModel) -> _Vocabulary:
        """The vocabulary of a model."""
        plain = torch.ones(len(model.tokenizer), dtype=torch.bool)
        plain[sorted(model.tokenizer.special_tokens)] = False
        return cls(model.tokenizer.token_texts, plain, _embedding_vectors(model))

    def find_tokens(self, wanted: Sequence[str], name: str) -> list[int]:
        """The tokens with these texts, or ten spread over the vocabulary."""
        plain = self.plain.nonzero()[:, 0].tolist()
        if not wanted:
            few = min(10, len(plain))
            return [plain[number * len(plain) // few] for number in range(few)]
        spelled = {self.token_texts[token]: token for token in reversed(plain)}
        for text in wanted:
            if text not in spelled:
                raise Problem(f"The vocabulary of {name} has no token {text!r}; choose another.")
        return [spelled[text] for text in wanted]

    def neighbor_rows(self, token: int, count: int) -> list[dict[str, float | int | str | None]]:
        """One row per nearest neighbor of a token."""
        rows_of_neighbors = nearest_rows(self.table, token, count, among=self.plain)
        cosines = torch.cosine_similarity(self.table[rows_of_neighbors], self.table[token], dim=1)
        distances = (self.table[rows_of_neighbors] - self.table[token]).norm(dim=1)
        return [
            {
                "token": self.token_texts[token],
                "rank": rank,
                "neighbor": self.token_texts[neighbor],
                "distance": distance,
                "cosine": cosine,
            }
            for rank, (neighbor, distance, cosine) in enumerate(
                zip(rows_of_neighbors.tolist(), distances.tolist(), cosines.tolist(), strict=True), start=1
            )
        ]


def anisotropy_curves(runs: Mapping[str, Path], *, device: str | None = None) -> Finding:
    """The anisotropy of each run's embeddings over its steps, and of the final model (without a step)."""
    curves = {name: anisotropy_of_run(folder, device=device) for name, folder in runs.items()}
    rows: list[ResultRow] = []
    for name, folder in runs.items():
        rows += [{"run": name, "step": step, "anisotropy": value} for step, value in curves[name].items()]
        rows.append({"run": name, "step": None, "anisotropy": _anisotropy_of_model(folder, device)})
    lines = {name: (list(curve), list(curve.values())) for name, curve in curves.items() if curve}
    return Finding(
        name="anisotropy",
        title="Anisotropy of the embeddings during training",
        paper_figure="Difformer, section 3.1 and table 1",
        rows=rows,
        signature="mean cosine of two different rows|all tokens",
        draw=partial(draw_lines, lines=lines, x="step", y="anisotropy") if lines else None,
    )


def anisotropy_of_run(folder: Path, *, device: str | None = None) -> dict[int, float]:
    """The anisotropy of a run by step: logged values, and those of saved models."""
    return dict(
        sorted((dict(_anisotropy_of_checkpoints(folder, device)) | dict(_logged_anisotropy(folder))).items())
    )


def _logged_anisotropy(folder: Path) -> list[tuple[int, float]]:
    if not (folder / "metrics.jsonl").is_file():
        return []
    curve = read_metrics(folder).get("valid_anisotropy")
    points = [] if curve is None else zip(curve.steps, curve.values, strict=True)
    return [(step, value) for step, value in points if value is not None]


def _anisotropy_of_checkpoints(folder: Path, device: str | None) -> list[tuple[int, float]]:
    """The steps of the saved models in the folder, and the anisotropy of each."""
    found = []
    for saved in sorted([*folder.glob("best_models/*"), *folder.glob("checkpoint-*")]):
        number = re.search(r"(\d+)$", saved.name)
        if number and (saved / "model.safetensors").is_file():
            found.append((int(number[1]), _anisotropy_of_model(saved, device)))
    return found


def _anisotropy_of_model(folder: Path, device: str | None) -> float:
    loaded = load(folder, device=device)
    model = require_diffusion(loaded, str(folder), wanted="The embedding space")
    return anisotropy(_embedding_vectors(model))


def _embedding_vectors(model: DiffusionModel) -> Tensor:
    return model.denoiser.embedding.vectors.detach().double().cpu()
