"""Nearest neighbors and anisotropy, of a model and during training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.spatial import KDTree
from scipy.spatial.distance import cosine, pdist

from noise2text.analysis.catalogue import ANALYSES
from noise2text.analysis.embeddings import (
    anisotropy_curves,
    anisotropy_of_run,
    nearest_rows,
    neighbors,
)
from noise2text.analysis.inputs import Inputs
from noise2text.commands.train import train
from noise2text.core.errors import Problem
from noise2text.models import DiffusionModel
from noise2text.models.folder import load

from ..conftest import SMALL
from .models import TOKENIZER, find_model_folder, tiny

analyze_embeddings = ANALYSES["embeddings"]


def table_of(folder: Path) -> Any:
    model = load(folder, device="cpu", precision="float32")
    assert isinstance(model, DiffusionModel)
    return model.denoiser.embedding.vectors.detach().double().numpy()


def test_the_nearest_rows_are_those_of_a_tree() -> None:
    table = torch.randn(200, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tree = KDTree(table.numpy())
    everyone = torch.ones(200, dtype=torch.bool)
    for row in (0, 7, 199):
        found = nearest_rows(table, row, 6, among=everyone)
        assert found.tolist() == tree.query(table[row].numpy(), k=7)[1].tolist()[1:]


def test_neighbors_leave_out_special_tokens_and_the_token_itself() -> None:
    model = tiny("difformer")
    assert isinstance(model, DiffusionModel)
    found = neighbors({"own": model}, count=50)
    words = set("?!=;")
    assert {row["token"] for row in found.rows} == words
    for token in words:
        assert {row["neighbor"] for row in found.rows if row["token"] == token} == words - {token}
    table = model.denoiser.embedding.vectors.detach().double().numpy()
    row = found.rows[0]
    one, other = (TOKENIZER.encode([str(row[side])])[0][0] for side in ("token", "neighbor"))
    assert row["cosine"] == pytest.approx(1 - cosine(table[one], table[other]))
    assert row["distance"] == pytest.approx(pdist(table[[one, other]])[0])


def test_tokens_can_be_named_and_unknown_ones_are_refused() -> None:
    found = neighbors({"own": tiny("diffuseq")}, tokens=["=", "?"], count=1)
    assert [row["token"] for row in found.rows] == ["=", "?"]
    with pytest.raises(Problem, match="own has no token 'x'"):
        neighbors({"own": tiny("diffuseq")}, tokens=["x"])
    with pytest.raises(Problem, match="teacher is not one"):
        neighbors({"teacher": tiny("transformer")})


def test_a_run_logs_its_anisotropy_at_each_validation(dates: Path, tmp_path: Path) -> None:
    files: dict[str, Any] = {split: str(dates / f"{split}.jsonl") for split in ("train", "valid")}
    changes = SMALL | {
        "optim.steps": 4,
        "validate_every": 2,
        "save_every": 2,
        "average_best": 2,
        "noise_factor": 2.0,
    }
    run = tmp_path / "run"
    train("difformer", out=run, preset="tiny", changes=changes, device="cpu", **files)
    found = anisotropy_of_run(run, device="cpu")
    assert list(found) == [2, 4]
    for step in (2, 4):
        cosines = 1 - pdist(table_of(run / "best_models" / f"{step:08d}"), "cosine")
        assert found[step] == pytest.approx(cosines.mean(), abs=1e-6)
    (run / "metrics.jsonl").write_text(json.dumps({"step": 1, "loss": 1.0}) + "\n")
    assert anisotropy_of_run(run, device="cpu") == pytest.approx(found, abs=1e-6)  # from what it kept


def test_a_model_without_a_run_has_one_number_and_no_curve(tmp_path: Path) -> None:
    folder = find_model_folder("diffuseq", tmp_path / "own")
    found = anisotropy_curves({"own": folder}, device="cpu")
    assert [row["step"] for row in found.rows] == [None]
    assert found.rows[0]["anisotropy"] == pytest.approx((1 - pdist(table_of(folder), "cosine")).mean())
    assert found.draw is None
    assert [each.name for each in analyze_embeddings(Inputs(models=[folder], device="cpu"))] == [
        "neighbors",
        "anisotropy",
    ]
