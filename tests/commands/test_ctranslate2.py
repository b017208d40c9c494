"""A converted Transformer has the scores and texts of ours; CTranslate2 is the oracle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from noise2text import load, train
from noise2text.commands.bench import bench_report, list_configurations, take_likeliest_length
from noise2text.commands.bench_ctranslate2 import bench_ctranslate2, build_transformer
from noise2text.commands.ctranslate2_baseline import (
    CTranslate2Model,
    convert_transformer,
    require_transformer,
)
from noise2text.core.errors import Problem
from noise2text.models import AutoregressiveModel

from ..conftest import SMALL, Make

pytest.importorskip("ctranslate2")
TEXTS = ["7 april 1957", "31. dezember 1999", "2 may 2003", "14 juni 1888"]
TARGETS = ["1957-04-07", "1999-12-31", "2003-05-01", "1"]


@pytest.fixture(scope="module")
def transformer(dates: Path, tmp_path_factory: pytest.TempPathFactory) -> AutoregressiveModel:
    """A Transformer of unequal depths, trained for a moment, so that no weight is as it began."""
    names = (
        "model_dim",
        "ffn_dim",
        "heads",
        "max_tokens",
        "warmup",
        "validation_sentences",
        "max_source",
        "max_target",
    )
    changes = {name: SMALL[name] for name in names} | {"encoder_layers": 2, "decoder_layers": 3, "heads": 4}
    model = train(
        "transformer",
        preset="tiny",
        train=dates / "train.jsonl",
        valid=dates / "valid.jsonl",
        out=tmp_path_factory.mktemp("runs") / "transformer",
        changes=changes | {"optim.steps": 60, "lr": 3e-3, "validate_every": 60, "save_every": 60},
        device="cpu",
    )
    assert isinstance(model, AutoregressiveModel)
    return model.eval()


@pytest.fixture(scope="module")
def converted(transformer: AutoregressiveModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("converted")
    convert_transformer(transformer, folder)
    return folder


def test_likelihoods_are_ours(transformer: AutoregressiveModel, converted: Path) -> None:
    peer = CTranslate2Model.load(transformer, converted, precision="float32")
    assert peer.likelihood(TEXTS, TARGETS) == pytest.approx(transformer.likelihood(TEXTS, TARGETS), abs=1e-3)


@pytest.mark.parametrize("beam", [1, 4])
def test_texts_are_ours(transformer: AutoregressiveModel, converted: Path, beam: int) -> None:
    peer = CTranslate2Model.load(transformer, converted, precision="float32")
    ours = transformer.generate(TEXTS, beam=beam).texts
    assert len(set(ours)) > 1  # it has learned to read its source
    assert peer.generate(TEXTS, beam=beam) == ours


def test_int8_stays_close(transformer: AutoregressiveModel, converted: Path) -> None:
    peer = CTranslate2Model.load(transformer, converted, precision="int8")
    assert peer.likelihood(TEXTS, TARGETS) == pytest.approx(transformer.likelihood(TEXTS, TARGETS), rel=0.2)


def test_a_length_is_kept(transformer: AutoregressiveModel, converted: Path) -> None:
    peer = CTranslate2Model.load(transformer, converted, precision="float32")
    assert {len(text) for text in peer.generate(TEXTS, beam=2, length=7)} == {7}


def test_other_models_are_refused() -> None:
    with pytest.raises(Problem, match="is no Transformer"):
        require_transformer(load("de-en", device="cpu"), Path("de-en"))


def test_bench_compares_quality_and_time_with_a_trained_transformer(
    transformer: AutoregressiveModel, small: Make, dates: Path, tmp_path: Path
) -> None:
    assert transformer.origin is not None
    (tmp_path / "pairs.jsonl").write_text(
        "\n".join((dates / "test.jsonl").read_text().splitlines()[:4]) + "\n"
    )
    few: dict[str, Any] = {
        "batches": "1,2",
        "steps": "2",
        "candidates": "1",
        "length": 5,
        "as_json": False,
        "peer": "ctranslate2",
    }
    lines = list(
        bench_report(
            small(), tmp_path, input=str(tmp_path / "pairs.jsonl"), teacher=transformer.origin.folder, **few
        )
    )
    assert "beam 5: of 4 texts, 4 of CTranslate2 in float32" in "\n".join(lines)
    for system in ("1 candidate, 2 steps", "its own settings", "CTranslate2, greedy", "CTranslate2, beam 5"):
        rows = [line for line in lines if system in line]
        assert [line.split()[0] for line in rows] == ["1", "2"]
        assert all(float(line.split()[-1]) >= 0 for line in rows)  # BLEU
    with pytest.raises(Problem, match="give both --teacher DIR"):
        list(bench_report(small(), tmp_path, input=None, teacher=transformer.origin.folder, **few))
    with pytest.raises(Problem, match="--teacher is the Transformer"):
        list(bench_report(small(), tmp_path, input=None, teacher=tmp_path, **few | {"peer": "hf"}))


def test_bench_times_a_transformer_of_the_same_shape_without_texts(small: Make, tmp_path: Path) -> None:
    transformer = build_transformer(small(), model_dim=16, ffn_dim=32, heads=2, layers=1)
    convert_transformer(transformer, tmp_path)
    configurations = {"ours": {"steps": 2, "length": 5}}
    rows = list(
        bench_ctranslate2(
            small(),
            transformer,
            tmp_path,
            batches=[2],
            configurations=configurations,
            texts=TEXTS,
            length=5,
            rounds=1,
        )
    )
    assert [row.system for row in rows] == ["ours", "CTranslate2, greedy", "CTranslate2, beam 5"]
    assert rows[-1].times_as_fast == 1
    assert {row.bleu for row in rows} == {None}


def test_a_row_of_bench_has_its_number_of_candidates_on_real_texts(small: Make) -> None:
    model = small()
    model.generation_config = replace(model.generation_config, length_beam=3)
    for name, settings in list_configurations(model, [2], [1, 4], 5).items():
        made = model.generate(["7 april 1957"], **take_likeliest_length(settings, model))
        assert len(made.candidates[0]) == int(name.split()[0])
