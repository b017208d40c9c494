"""A student that starts from its teacher: the same layers, and embeddings that say the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from noise2text import load
from noise2text.commands.train import train
from noise2text.core.config import apply_overrides, has_setting
from noise2text.core.errors import Problem
from noise2text.data.layouts.base import Source
from noise2text.models import AutoregressiveModel, DiffusionModel
from noise2text.models.registry import find_recipe
from noise2text.nn.encoder_decoder import EncoderDecoder

from ..conftest import SMALL

SHAPE = {"model_dim": 16, "ffn_dim": 24, "heads": 2, "encoder_layers": 2, "decoder_layers": 1}
SHORT = SMALL | SHAPE | {"optim.steps": 2, "validate_every": 2, "save_every": 2}
STUDENT = SHORT | {"embedding_dim": 16, "tokenizer": "folder"}
STUDENTS = {
    "difformer": STUDENT | {"noise_factor": 2.0},
    "seqdiffuseq": STUDENT | {"refit_every": 0, "generation.steps": 5, "network": "difformer"},
}


@pytest.fixture(params=STUDENTS)
def name(request: pytest.FixtureRequest) -> str:
    """A recipe that can start from a Transformer."""
    return str(request.param)


def files(dates: Path) -> dict[str, Any]:
    return {split: str(dates / f"{split}.jsonl") for split in ("train", "valid")}


@pytest.fixture(scope="module")
def teacher(dates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("taught") / "teacher"
    tiny = find_recipe("transformer").preset("tiny")
    changes = {name: value for name, value in SHORT.items() if has_setting(tiny, name)}
    train("transformer", out=folder, preset="tiny", changes=changes, device="cpu", **files(dates))
    return folder


def begun(name: str, teacher: Path, **changes: Any) -> DiffusionModel:
    """An untrained student that has started from the teacher."""
    recipe = find_recipe(name)
    wanted = STUDENTS[name] | {"from_folder": str(teacher)} | changes
    config = apply_overrides(recipe.preset("tiny"), wanted, origin="the test")
    torch.manual_seed(0)
    model: DiffusionModel = recipe.build(config, load(teacher, device="cpu").tokenizer)
    recipe.initialize(config, model)
    return model.eval()


def taught_tokens(model: DiffusionModel) -> torch.Tensor:
    """All tokens but the padding that SeqDiffuSeq writes."""
    taught = torch.ones(len(model.tokenizer), dtype=torch.bool)
    taught[sorted(set(model.layout.end_tokens) - {model.tokenizer.eos})] = False
    return taught


def source_of(model: Any, texts: list[str]) -> Source:
    rows = model.tokenizer.encode(texts)
    longest = max(map(len, rows))
    tokens = torch.tensor([row + [model.tokenizer.pad] * (longest - len(row)) for row in rows])
    return Source(tokens, torch.tensor([[at >= len(row) for at in range(longest)] for row in rows]))


def test_with_as_many_channels_the_encoder_says_what_the_teachers_says(name: str, teacher: Path) -> None:
    master, student = load(teacher, device="cpu"), begun(name, teacher)
    assert isinstance(master, AutoregressiveModel)
    source = source_of(master, ["12 March 1999", "May 3, 2001"])
    with torch.no_grad():
        expected, found = master.network.encode(source), student.denoiser.encode(source)
    seen = ~source.padding
    assert torch.allclose(found.states[seen], expected.states[seen], atol=1e-4)
    mine, its = (encoded.keys.transpose(2, 3)[:, seen] for encoded in (found, expected))
    assert torch.allclose(mine, its, atol=1e-4)


def test_with_fewer_channels_the_states_are_the_nearest_of_that_rank(name: str, teacher: Path) -> None:
    master, model = load(teacher, device="cpu"), begun(name, teacher, embedding_dim=6)
    student, taught = model.denoiser, taught_tokens(model)
    assert isinstance(master, AutoregressiveModel)
    assert isinstance(student, EncoderDecoder)
    table = master.network.embedding.vectors.double()
    read = student.encoder.input_projection.double()(student.embedding.vectors.double())
    left, sizes, right = torch.linalg.svd(table, full_matrices=False)
    nearest = left[:, :6] * sizes[:6] @ right[:6]
    assert torch.allclose(read[taught], nearest[taught], atol=1e-5)


def test_the_channels_are_as_large_as_chance_has_them_and_do_not_correlate(teacher: Path) -> None:
    z0 = begun("difformer", teacher, embedding_dim=6).denoiser.embedding.vectors.double()
    assert torch.allclose(z0.T @ z0 / len(z0), torch.eye(6, dtype=torch.double), atol=1e-5)


def test_the_decoder_has_the_teachers_layers_and_positions_and_projects_z_as_the_encoder_does(
    name: str, teacher: Path
) -> None:
    master, student = load(teacher, device="cpu"), begun(name, teacher, embedding_dim=6).denoiser
    assert isinstance(master, AutoregressiveModel)
    assert isinstance(student, EncoderDecoder)
    own, taught = student.state_dict(), master.network.state_dict()
    layers = [
        weight
        for weight in own
        if ".layers." in weight or weight.startswith(("layers.", "key_value_projection."))
    ]
    assert sum(weight.startswith("layers.") for weight in layers) > 10
    for weight in (*layers, "encoder.position_embedding.weight"):
        assert torch.equal(own[weight], taught[weight]), weight
    length = len(own["position_embedding.weight"])
    assert torch.equal(own["position_embedding.weight"], taught["position_embedding.weight"][:length])
    into, out = own["input_projection.weight"], own["output_projection.weight"]
    assert torch.equal(into, own["encoder.input_projection.weight"])
    assert torch.allclose(out / out.norm(), into.T / into.norm(), atol=1e-6)
    assert out.square().sum(1).mean().item() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("size", [0, 1])
def test_padding_that_is_written_is_as_large_as_a_token_and_no_others(
    teacher: Path, tmp_path: Path, size: int
) -> None:
    """A teacher never writes padding, so that its row may be nothing, or another token's."""
    home = shutil.copytree(teacher, tmp_path / "teacher")
    weights, tokenizer = load_file(home / "model.safetensors"), load(teacher, device="cpu").tokenizer
    table = weights["network.embedding.weight"]
    table[tokenizer.pad] = table[tokenizer.unk] * size
    save_file(weights, home / "model.safetensors")
    model = begun("seqdiffuseq", home, embedding_dim=6)
    z0 = model.denoiser.embedding.vectors
    padding, others = z0[tokenizer.pad], z0[taught_tokens(model)]
    assert padding.square().mean().item() == pytest.approx(1, rel=1e-5)
    assert others.square().mean().item() == pytest.approx(1, rel=0.05)
    assert (others - padding).square().mean(1).min() > 0.1
    assert model.denoiser.embedding.nearest(padding) == tokenizer.pad


def test_a_student_trains_on_its_teachers_tokens_and_goes_on_without_it(
    name: str, dates: Path, teacher: Path, tmp_path: Path
) -> None:
    home = shutil.copytree(teacher, tmp_path / "teacher")
    run: dict[str, Any] = {"out": tmp_path / "student", "device": "cpu"} | files(dates)
    student = train(name, preset="tiny", changes=STUDENTS[name] | {"from_folder": str(home)}, **run)
    assert student.tokenizer.fingerprint == load(teacher, device="cpu").tokenizer.fingerprint
    shutil.rmtree(home)
    after = train(name, changes={"optim.steps": 4}, resume=True, **run)
    again = load(tmp_path / "student", device="cpu")
    assert again.generate(["12 March 1999"], seed=1) == after.generate(["12 March 1999"], seed=1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_dim": 32, "heads": 2}, "where this model has"),
        ({"heads": 4}, "2 heads where this model has 4"),
        ({"encoder_layers": 3}, "fewer layers"),
        ({"encoder_layers": 1}, "more layers"),
        ({"embedding_dim": 64}, "channels at the most"),
    ],
)
def test_another_shape_is_refused(name: str, teacher: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Problem, match=words):
        begun(name, teacher, **changes)


def test_what_is_no_transformer_is_refused(name: str, dates: Path, teacher: Path, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="no whole model"):
        begun(name, teacher, from_folder=str(tmp_path))
    other, changes = tmp_path / "other", STUDENTS[name] | {"tokenizer": "characters"}
    train(name, out=other, preset="tiny", changes=changes, device="cpu", **files(dates))
    with pytest.raises(Problem, match="no transformer"):
        begun(name, teacher, from_folder=str(other))


def test_other_tokens_are_refused(name: str, dates: Path, teacher: Path, tmp_path: Path) -> None:
    changes = STUDENTS[name] | {"from_folder": str(teacher), "tokenizer": "bpe", "vocabulary": 300}
    with pytest.raises(Problem, match="set tokenizer to folder"):
        train(name, out=tmp_path / "x", preset="tiny", changes=changes, device="cpu", **files(dates))
    assert not (tmp_path / "x").exists(), "so that it can be done as the message says"


def test_a_folder_of_tokens_needs_a_name(name: str, dates: Path, tmp_path: Path) -> None:
    changes = STUDENTS[name]
    with pytest.raises(Problem, match="from_folder"):
        train(name, out=tmp_path / "x", preset="tiny", changes=changes, device="cpu", **files(dates))


def test_embeddings_have_one_origin() -> None:
    changes = {"from_folder": "a", "embeddings_from": "b"}
    with pytest.raises(Problem, match="not both"):
        apply_overrides(find_recipe("difformer").preset("tiny"), changes, origin="the test")
