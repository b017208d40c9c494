"""DiffuSeq whose source has another model's embeddings, which never change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from noise2text import load
from noise2text.commands.train import train
from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import AutoregressiveModel, DiffusionModel
from noise2text.nn.separate_source_transformer import SeparateSourceTransformer
from noise2text.recipes.diffuseq_decoupled import PRESETS, RECIPE, build

SHAPE: dict[str, Any] = {"model_dim": 16, "ffn_dim": 32, "heads": 2}
STEPS: dict[str, Any] = {"optim.steps": 3, "validation_sentences": 2, "max_tokens": 256}


def made(tokenizer: Tokenizer) -> tuple[DiffusionModel, SeparateSourceTransformer]:
    torch.manual_seed(0)
    model = build(PRESETS["tiny"].replace(SHAPE, layers=1, embedding_dim=6), tokenizer)
    assert isinstance(model.denoiser, SeparateSourceTransformer)
    return model, model.denoiser


def test_the_source_has_its_own_embeddings_and_the_target_the_learned_ones(tokenizer: Tokenizer) -> None:
    model, denoiser = made(tokenizer)
    canvas = model.layout.make_canvas(
        RaggedRows.from_lists([[8, 9, 10], [12, 13]]), RaggedRows.from_lists([[20, 21], [23, 24, 25]])
    )
    embeddings = denoiser.constrain(canvas).embeddings
    for row in range(2):
        for position, token in enumerate(canvas.tokens[row]):
            table = denoiser.source_embedding if canvas.given[row, position] else denoiser.embedding
            assert torch.equal(embeddings[row, position], table.embed(token))


def test_given_words_of_the_target_are_not_of_the_source(tokenizer: Tokenizer) -> None:
    model, _ = made(tokenizer)
    made_texts = model.generate(["7 may 2001"], prefix="20", steps=2)
    assert made_texts.texts[0].startswith("20")


def test_all_learns_but_the_sources_embeddings(tokenizer: Tokenizer) -> None:
    model, _ = made(tokenizer)
    objective = RECIPE.objective(PRESETS["tiny"], model)
    canvas = model.layout.make_canvas(
        RaggedRows.from_lists([[8, 9, 10], [12, 13]]), RaggedRows.from_lists([[20, 21], [23, 24, 25]])
    )
    token_losses = objective(canvas, objective.draw(canvas, make_key(0, torch.arange(2)), make_key(0)))
    objective.loss({name: token_loss.total() for name, token_loss in token_losses.items()}).backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert without == ["denoiser.source_embedding.weight"]


def test_a_transformers_embeddings_are_taken_and_kept(dates: Path, tmp_path: Path) -> None:
    files: dict[str, Any] = {split: str(dates / f"{split}.jsonl") for split in ("train", "valid")}
    same = {"preset": "tiny", "device": "cpu", **files}
    teacher = SHAPE | STEPS | {"lowercase": True}
    train("transformer", out=tmp_path / "teacher", changes=teacher, **same)
    own = SHAPE | STEPS | {"layers": 1, "generation.steps": 2, "embeddings_from": str(tmp_path / "teacher")}
    train("diffuseq-decoupled", out=tmp_path / "model", changes=own, **same)
    teacher_model, model = (load(tmp_path / name, device="cpu") for name in ("teacher", "model"))
    assert isinstance(teacher_model, AutoregressiveModel)
    assert isinstance(model, DiffusionModel)
    assert isinstance(model.denoiser, SeparateSourceTransformer)
    ratio = model.denoiser.source_embedding.weight / teacher_model.network.embedding.weight
    assert torch.allclose(ratio, ratio.mean().expand_as(ratio), rtol=1e-4), "one factor for all"
    with pytest.raises(Problem, match="set embedding_dim"):
        train("diffuseq-decoupled", out=tmp_path / "other", changes=own | {"embedding_dim": 8}, **same)
