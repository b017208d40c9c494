"""Timing says what it timed; nothing here asserts a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from noise2text.commands.bench import bench, bench_marian, bench_report, measure_scaling
from noise2text.commands.bench_tools import count_linear_flops, make_random_texts
from noise2text.core.errors import Problem
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.folder import load, save
from noise2text.models.registry import find_recipe

from ..conftest import SMALL, Make


@pytest.fixture
def folder(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    recipe = find_recipe("difformer")
    config = recipe.preset("tiny").replace(SMALL, noise_factor=2.0)
    save(tmp_path, recipe.build(config, tokenizer), recipe="difformer", config=config)
    return tmp_path


def test_there_is_a_row_for_each_setting(small: Make) -> None:
    model = small()
    rows = list(bench(model, batches=[1, 2], steps=[1, 2], candidates=[1, 3], length=6, repeats=1))
    assert [(row.batch, row.label) for row in rows] == [
        (batch, f"{candidates}, {steps}")
        for batch in (1, 2)
        for candidates in ("1 candidate", "3 candidates")
        for steps in ("1 step", "2 steps")
    ]
    assert all(row.seconds > 0 and row.first_call > 0 and row.peak_fraction > 0 for row in rows)
    assert all(row.sentences_per_second == row.batch / row.seconds for row in rows)


def test_the_share_counts_every_product_with_weights(small: Make) -> None:
    """Against torch's own count of a forward pass, less attention, which has no weights."""
    from torch.utils.flop_counter import FlopCounterMode

    model = small()
    source = model.layout.make_source(RaggedRows.from_lists([[8, 9, 10, 11]]))
    with FlopCounterMode(display=False) as counter, count_linear_flops(model) as total, torch.no_grad():
        model.denoiser.encode(source)
    named = counter.get_flop_counts()["Global"]
    attention = sum(n for op, n in named.items() if "attention" in str(op) or "bmm" in str(op))
    assert total[0] == sum(named.values()) - attention


def test_growth_names_each_cause(small: Make) -> None:
    assert set(measure_scaling(small(), length=4, steps=2, repeats=1)) == {
        "length",
        "steps",
        "candidates",
        "batch",
    }


def test_growth_leaves_out_a_length_that_cannot_double(small: Make) -> None:
    model = small()
    model.max_target = 1
    assert set(measure_scaling(model, length=4, steps=2, repeats=1)) == {"steps", "candidates", "batch"}


def test_made_up_texts_are_as_long_as_asked(small: Make) -> None:
    model = small()
    texts = make_random_texts(model, 3, 9)
    assert texts == make_random_texts(model, 3, 9)
    assert len(texts) == 3
    assert all(0 < len(row) <= 9 for row in model.tokenizer.encode(texts))


def test_the_report_is_a_table_or_json(folder: Path) -> None:
    model = load(folder, device="cpu")
    few = {"batches": "1", "steps": "2", "candidates": "1", "length": 5, "input": None, "peer": None}
    lines = list(bench_report(model, folder, **few, as_json=False))  # type: ignore[arg-type]
    assert lines[0] == f"CPU, torch {torch.__version__}, float32"
    assert "1 candidate, 2 steps " in lines[2]
    assert lines[2].split()[-2] == "–", "the memory of a CPU is not measured"
    assert len(lines[1]) == len(lines[2]) <= 80
    made = json.loads("".join(bench_report(model, folder, **few, as_json=True)))  # type: ignore[arg-type]
    assert made["rows"][0]["batch"] == 1
    assert set(made["growth"]) == {"length", "steps", "candidates", "batch"}


def test_mistakes_are_named(folder: Path) -> None:
    model = load(folder, device="cpu")
    few = {"batches": "1,x", "steps": "2", "candidates": "1", "length": 5, "input": None, "as_json": False}
    with pytest.raises(Problem, match="--batches takes whole numbers above 0"):
        list(bench_report(model, folder, **few, peer=None))  # type: ignore[arg-type]
    with pytest.raises(Problem, match="--peer must be hf or ctranslate2, not 'fairseq'"):
        list(bench_report(model, folder, **few, peer="fairseq"))  # type: ignore[arg-type]


def test_a_peer_of_the_same_shape_is_timed(small: Make) -> None:
    pytest.importorskip("transformers")
    rows = bench_marian(small(), batches=[2], model_dim=16, ffn_dim=32, heads=2, layers=1, length=4)
    assert [row.label for row in rows] == ["transformers, greedy", "transformers, beam 5"]


def test_what_has_no_weights_is_timed_and_what_has_no_peer_says_so(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    few = {"batches": "1", "steps": "1", "candidates": "1", "length": 5, "input": None, "as_json": False}
    for name, peer in (("copy", None), ("gru", "hf")):
        recipe, folder = find_recipe(name), tmp_path / name
        config = recipe.preset("tiny")
        save(folder, recipe.build(config, tokenizer), recipe=name, config=config)
        lines = bench_report(load(folder, device="cpu"), folder, **few, peer=peer)  # type: ignore[arg-type]
        if peer is None:
            assert any("default settings" in line for line in lines)
        else:
            with pytest.raises(Problem, match="no peer of the shape of gru"):
                list(lines)


def test_a_file_without_texts_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    few = {"batches": "1", "steps": "1", "candidates": "1", "length": 5, "peer": None, "as_json": False}
    with pytest.raises(Problem, match="has no texts"):
        list(bench_report(load(folder, device="cpu"), folder, **few, input=str(tmp_path / "empty.txt")))  # type: ignore[arg-type]
