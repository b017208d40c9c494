"""Commands that judge and look; every mistake is one sentence and a failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Outcome


def test_rescale_finds_a_factor(run: Callable[..., Outcome], model: Path) -> None:
    done = run("rescale", "--schedule", "sqrt", "--vocab", 100, "--dim", 16, "--target", 0.15, "--json")
    found = json.loads(done.out)
    assert set(found) == {"factor", "dgs", "dgs_unscaled"}
    assert found["dgs"] <= 0.15 < found["dgs_unscaled"]
    preserving = run(
        "rescale", "--vocab", 100, "--dim", 16, "--target", 0.15, "--variance-preserving", "--json"
    )
    assert json.loads(preserving.out)["dgs"] <= 0.15
    trained = run("rescale", model, "--target", 0.2, "--json")
    assert json.loads(trained.out)["dgs"] <= 0.2


def test_inspect_shows_size_settings_and_anisotropy(run: Callable[..., Outcome], model: Path) -> None:
    seen = json.loads(run("inspect", model, "--json").out)
    assert seen["model"]["recipe"] == "difformer"
    assert seen["model"]["parameters"] > 1000
    assert -1 <= seen["model"]["anisotropy"] <= 1
    assert seen["settings"]["width"] == 32
    assert "anisotropy" in run("inspect", model).out


def test_recipes_and_settings_are_listed(run: Callable[..., Outcome]) -> None:
    assert json.loads(run("recipes", "--json").out)[0]["name"] == "difformer"
    assert "qqp" in run("recipes").out
    assert "learning_rate" in run("settings", "difformer", "--preset", "tiny").out


def test_published_is_a_table_or_json(run: Callable[..., Outcome]) -> None:
    done = run("published", "--task", "qqp")
    assert done.code == 0
    assert "| 30.52 |" in done.out
    assert "mean of sentence BLEU" in done.out
    rows = json.loads(run("published", "--json").out)
    assert {"paper", "table", "task", "system", "setting", "scores", "note"} == set(rows[0])
    wrong = run("published", "--task", "qpp")
    assert (wrong.code, wrong.out) == (1, "")
    assert "iwslt14-de-en" in wrong.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["train", "diformer", "--train", "T", "--valid", "T", "--out", "O"], "did you mean difformer"),
        (["train", "difformer", "--train", "missing.jsonl", "--valid", "T", "--out", "O"], "missing.jsonl"),
        (["train", "difformer", "--train", "E", "--valid", "T", "--out", "O"], "E"),
        (["train", "difformer", "--train", "T", "--valid", "T", "--out", "O", "--set", "widht=3"], "width"),
        (["train", "difformer", "--train", "T", "--valid", "T", "--out", "O", "--set", "width"], "key=value"),
        (["train", "difformer", "--train", "T", "--valid", "T", "--out", "O", "--preset", "x"], "preset"),
        (["train", "difformer", "--train", "B", "--valid", "T", "--out", "O", "--preset", "tiny"], "line 2"),
        (["generate", "nowhere", "--input", "T"], "nowhere"),
        (["generate", "M", "--input", "missing.txt"], "missing.txt"),
        (["generate", "M", "--input", "T", "--steps", "0"], "steps"),
        (["generate", "M", "--input", "T", "--select", "best"], "select"),
        (["generate", "M", "--input", "T", "--set", "beams=3"], "beams"),
        (["generate", "M", "--input", "T", "--batch", "0"], "batch"),
        (["generate", "M", "--input", "T", "--device", "abacus"], "abacus"),
        (["generate", "M", "--input", "T", "--output", "missing/folder/out.txt"], "cannot be written"),
        (["sample", "M", "--count", "0"], "at least 1 pair"),
        (["evaluate", "--hyp", "T", "--ref", "E"], "E"),
        (["inspect", "nowhere"], "nowhere"),
        (["rescale", "--target", "0"], "target"),
        (["rescale", "--vocab", "1"], "1"),
        (["synth", "dates", "--out", "O", "--pairs", "0"], "pairs"),
        (["synth", "days", "--out", "O", "--pairs", "0"], "pairs"),
        (["train-classifier", "M", "--train", "T", "--valid", "T", "--out", "O"], "label"),
        (["generate", "M", "--input", "T", "--class", "may"], "--guide"),
        (["generate", "M", "--input", "T", "--guide", "nowhere", "--class", "may"], "nowhere"),
    ],
)
def test_a_mistake_is_one_sentence_and_a_failure(
    run: Callable[..., Outcome],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    named: str,
) -> None:
    (tmp_path / "T").write_text('{"src": "a", "trg": "b"}\n')
    (tmp_path / "E").write_text("")
    (tmp_path / "B").write_text('{"src": "a", "trg": "b"}\n{"src": "a"}\n')
    monkeypatch.chdir(tmp_path)
    done = run(*[str(model) if argument == "M" else argument for argument in arguments])
    assert done.code == 1, done.err
    assert done.err.startswith("noise2text: ")
    assert named in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert "Traceback" not in done.err
    assert not (tmp_path / "O").exists(), "a mistake leaves nothing behind"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batches", "8"], "--train times training steps"),
        (["--set", "select=mbr"], "--train times training steps"),
        (["--precision", "int4"], "precision"),
        (["--rows", "-3"], "not 25 and -3"),
    ],
)
def test_what_training_is_not_timed_by_is_refused(
    run: Callable[..., Outcome], model: Path, arguments: list[str], message: str
) -> None:
    outcome = run("bench", model, "--train", "--device", "cpu", *arguments)
    assert outcome.code == 1
    assert message in outcome.err


def test_bench_times_the_settings_that_it_is_told(
    run: Callable[..., Outcome], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[str] = []

    def report(system: Any, *given: Any, **more: Any) -> list[str]:
        timed.append(system.generation_config.select)
        return []

    monkeypatch.setattr("noise2text.commands.bench.report", report)
    for settings in ((), ("--set", "select=score")):
        assert run("bench", model, "--device", "cpu", *settings).code == 0
    assert timed == ["mbr", "score"]


@pytest.mark.parametrize(
    ("setting", "option"),
    [
        ("steps", "--steps"),
        ("stop_early", "--steps"),
        ("noise_beam", "--candidates"),
        ("length", "--length"),
    ],
)
def test_bench_refuses_as_a_setting_what_it_has_an_option_for(
    run: Callable[..., Outcome], model: Path, setting: str, option: str
) -> None:
    done = run("bench", model, "--device", "cpu", "--set", f"{setting}=3")
    assert done.code == 1
    assert f"The setting {setting} is what {option} says" in done.err


@pytest.mark.parametrize("ignored", [("--vocab", 20), ("--dim", 3), ("--schedule", "linear")])
def test_rescale_refuses_what_a_model_decides_itself(
    run: Callable[..., Outcome], model: Path, ignored: tuple[object, ...]
) -> None:
    done = run("rescale", model, *ignored)
    assert done.code == 1
    assert "its own schedule and embeddings" in done.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--rows", 4), "give --train"),
        (("--length", 0), "at least 1 token, not 0"),
        (("--set", "selected=mbr"), "there is no setting 'selected'"),
    ],
)
def test_bench_refuses_what_it_would_not_time(
    run: Callable[..., Outcome], model: Path, given: tuple[object, ...], said: str
) -> None:
    done = run("bench", model, *given)
    assert done.code == 1
    assert said in done.err
    assert not done.out
