"""Copies are exact; the nearest source answers; both live in model folders like any system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noise2text import load
from noise2text.commands.inspect import inspect_model
from noise2text.commands.train import train
from noise2text.core.errors import Problem
from noise2text.data.corpus import read_pairs
from noise2text.models import Model
from noise2text.models.registry import find_recipe


def trained(name: str, dates: Path, out: Path, **options: Any) -> Model:
    files: dict[str, Any] = {split: str(dates / f"{split}.jsonl") for split in ("train", "valid")}
    return train(name, out=out, preset="tiny", device="cpu", **files, **options)


def test_every_text_is_copied_as_it_is(dates: Path, tmp_path: Path) -> None:
    texts = ["sunday, 7 april 1957", "Zażółć  gęślą\tjaźń 🙂", "", "x" * 1000, " [EOS] "]
    made = trained("copy", dates, tmp_path / "run").generate(texts)
    assert made.texts == texts
    assert made.truncated == 0


def test_a_known_source_gets_its_target_and_an_unknown_one_some_target(dates: Path, tmp_path: Path) -> None:
    pairs = list(read_pairs(str(dates / "train.jsonl")))
    model = trained("nearest", dates, tmp_path / "run")
    made = model.generate([pair.src for pair in pairs])
    assert made.texts == [pair.trg for pair in pairs]
    assert all(scores == [1.0] for scores in made.scores)
    several = model.generate(["4 july 1999"], neighbours=3)
    assert set(several.candidates[0]) <= {pair.trg for pair in pairs}
    assert several.scores[0] == sorted(several.scores[0], reverse=True)
    assert several.texts[0] == several.candidates[0][0]


def test_the_corpus_is_kept_two_bytes_a_token(dates: Path, tmp_path: Path) -> None:
    model: Any = trained("nearest", dates, tmp_path / "run")
    tokens = sum(len(pair.src) + len(pair.trg) for pair in read_pairs(str(dates / "train.jsonl")))
    assert model.source_tokens.element_size() == 2
    assert (tmp_path / "run" / "model.safetensors").stat().st_size < 2 * tokens + 8 * 200 + 1000


@pytest.mark.parametrize("name", ["copy", "nearest"])
def test_training_scores_the_validation_set_and_can_be_repeated(
    name: str, dates: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    trained(name, dates, out, changes={"validation_sentences": 5})
    with pytest.raises(Problem, match="already holds a run"):
        trained(name, dates, out)
    trained(name, dates, out, resume=True, changes={"validation_sentences": 5})
    (record,) = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    assert {"step", "valid_bleu", "valid_exact"} == set(record)
    assert load(out, device="cpu").generate(["7 april 1957"]).texts[0]
    assert inspect_model(out)["model"] | {"recipe": name, "parameters": 0} == inspect_model(out)["model"]


def test_there_is_no_objective_and_no_training_setting(dates: Path, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="no setting 'lr'"):
        trained("copy", dates, tmp_path / "run", changes={"lr": 1})
    with pytest.raises(Problem, match="section generation has no settings"):
        trained("copy", dates, tmp_path / "run", changes={"generation": 1})
    with pytest.raises(Problem, match="at once"):
        find_recipe("nearest").objective(None, None)
