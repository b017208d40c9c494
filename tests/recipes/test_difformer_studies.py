"""Difformer's studies: other people's embeddings, frozen or not (C.3), and rescaling in sampling (C.7)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from noise2text import load
from noise2text.commands.train import train
from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer, learn_characters
from noise2text.diffusion.schedules import Rescaled
from noise2text.models import LengthPredictingModel
from noise2text.models.folder import save
from noise2text.models.init_embeddings import load_embeddings
from noise2text.models.registry import find_recipe

from ..conftest import SMALL, Make, shrunk


def table_of(model: LengthPredictingModel) -> torch.Tensor:
    return model.denoiser.embedding.weight


def trained(dates: Path, out: Path, **changes: Any) -> LengthPredictingModel:
    files: dict[str, Any] = {split: str(dates / f"{split}.jsonl") for split in ("train", "valid")}
    config = SMALL | {"noise_factor": 2.0, "optim.steps": 3} | changes
    model = train("difformer", out=out, preset="tiny", changes=config, device="cpu", **files)
    assert isinstance(model, LengthPredictingModel)
    return model


def test_frozen_embeddings_of_another_model_stay_as_they_are(dates: Path, tmp_path: Path) -> None:
    first = trained(dates, tmp_path / "first")
    changes = {"embeddings_from": str(tmp_path / "first"), "freeze_embeddings": True, "seed": 5}
    second = trained(dates, tmp_path / "second", **changes)
    ratio = table_of(second) / table_of(first)
    assert torch.allclose(ratio, ratio.mean().expand_as(ratio), rtol=1e-4), "one factor for all"
    assert second.denoiser.embedding.vectors.square().mean().item() == pytest.approx(1, rel=1e-4)
    (tmp_path / "first" / "model.safetensors").unlink()
    assert torch.equal(table_of(load(tmp_path / "second", device="cpu")), table_of(second))  # type: ignore[arg-type]


def test_a_resumed_run_has_its_own_embeddings_and_needs_no_others(dates: Path, tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(size=(200, 8))
    np.save(tmp_path / "table.npy", table)
    with pytest.raises(Problem, match="same tokens"):
        trained(dates, tmp_path / "refused", embeddings_from=str(tmp_path / "table.npy"))
    trained(dates, tmp_path / "first")
    changes = {"embeddings_from": str(tmp_path / "first"), "freeze_embeddings": True}
    before = trained(dates, tmp_path / "second", **changes)
    shutil.rmtree(tmp_path / "first")
    files: dict[str, Any] = {split: str(dates / f"{split}.jsonl") for split in ("train", "valid")}
    after = train(
        "difformer", out=tmp_path / "second", changes={"optim.steps": 5}, resume=True, device="cpu", **files
    )
    assert torch.equal(table_of(after), table_of(before))  # type: ignore[arg-type]


def test_embeddings_that_are_not_frozen_go_on_learning(dates: Path, tmp_path: Path) -> None:
    trained(dates, tmp_path / "first")
    second = trained(dates, tmp_path / "second", embeddings_from=str(tmp_path / "first"))
    ratio = table_of(second) / table_of(load(tmp_path / "first", device="cpu"))  # type: ignore[arg-type]
    assert not torch.allclose(ratio, ratio.mean().expand_as(ratio), rtol=1e-4)


def test_a_table_of_numpy_is_placed_with_unit_mean_square(small: Make, tmp_path: Path) -> None:
    model = small()
    table = np.random.default_rng(0).normal(size=table_of(model).shape)
    np.save(tmp_path / "table.npy", 7 * table)
    load_embeddings(model.denoiser.embedding, model.tokenizer, tmp_path / "table.npy")
    expected = table / np.sqrt((table**2).mean())
    assert np.allclose(model.denoiser.embedding.vectors.detach(), expected, atol=1e-5)


def test_embeddings_on_a_sphere_stay_on_one(small: Make, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The table of such a model has rows of any length: only their directions count."""
    recipe = find_recipe("dinoiser")
    config = shrunk(recipe.preset("tiny"))
    theirs = recipe.build(config, tokenizer)
    theirs.denoiser.embedding.weight.data *= torch.linspace(0.5, 2, len(tokenizer))[:, None]
    save(tmp_path / "sphere", theirs, recipe="dinoiser", config=config)
    embedding = small().denoiser.embedding
    load_embeddings(embedding, tokenizer, tmp_path / "sphere")
    torch.testing.assert_close(embedding.vectors, theirs.denoiser.embedding.vectors)


def test_embeddings_that_do_not_fit_are_named(small: Make, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = small()
    embedding, (vocab, dim) = model.denoiser.embedding, table_of(model).shape
    np.save(tmp_path / "narrow.npy", np.ones((vocab, dim - 1)))
    np.save(tmp_path / "zero.npy", np.zeros((vocab, dim)))
    np.save(tmp_path / "text.npy", np.array([["a"]]))
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY")
    other = small()
    other.tokenizer = learn_characters(["another alphabet 012"])
    recipe = find_recipe("difformer")
    config = shrunk(recipe.preset("tiny"))
    save(tmp_path / "model", other, recipe="difformer", config=config)
    for name, said in [
        ("narrow.npy", "set embedding_dim"),
        ("zero.npy", "all 0"),
        ("text.npy", "array of numbers"),
        ("broken.npy", "cannot be read"),
        ("missing.npy", "cannot be read"),
        ("model", "other tokens"),
    ]:
        with pytest.raises(Problem, match=said):
            load_embeddings(embedding, tokenizer, tmp_path / name)


@pytest.mark.parametrize("dim", [4, 12, 64])
def test_any_embedding_dimension_builds_and_generates(small: Make, dim: int) -> None:
    made = small(embedding_dim=dim).generate(["12. mai 2001"], steps=2, stop_early=0)
    assert len(made.texts) == 1


def test_the_noise_of_sampling_can_be_rescaled(small: Make) -> None:
    model = small()
    assert model.build_sampling_schedule(model.generation_config) is model.schedule
    schedule = model.build_sampling_schedule(
        apply_overrides(model.generation_config, {"sampling_noise_factor": 4}, origin="test")
    )
    assert isinstance(schedule, Rescaled)
    t = torch.tensor([0.3, 1.0])
    assert torch.equal(schedule(t, 2).sigma, 4 * model.schedule(t, 2).sigma)
    seen: list[torch.Tensor] = []
    model.denoiser.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    for factor in (1, 4):
        model.generate(["12. mai 2001"], steps=2, stop_early=0, sampling_noise_factor=factor)
    assert torch.allclose(seen[2], 4 * seen[0]), "the first canvas is noise, four times as large"
    with pytest.raises(Problem, match="sampling_noise_factor"):
        model.generate(["12. mai 2001"], sampling_noise_factor=0)
