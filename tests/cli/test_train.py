"""Models are trained from every form of corpus."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import SETS, Outcome


def test_train_by_command_leaves_a_run(run: Callable[..., Outcome], dates: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["--train", dates / "train.jsonl", "--valid", dates / "valid.jsonl", "--out", out]
    done = run("train", "difformer", *arguments, "--preset", "tiny", "--device", "cpu", *SETS)
    assert done.code == 0, done.err
    assert "the best model" in done.err
    for name in ("config.json", "model.safetensors", "metrics.jsonl", "run.json", "checkpoint-00000003"):
        assert (out / name).exists(), name
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert {"loss", "vlb", "anchor", "length", "nll", "tokens_per_second"} <= set(records[0])
    assert {"valid_loss", "valid_bleu", "valid_nll"} <= set(records[-1])
    again = run("train", "difformer", *arguments, "--preset", "tiny", *SETS)
    assert again.code == 1
    assert "--resume" in again.err


@pytest.mark.parametrize("form", ["tsv", "parallel", "stdin", "gzip", "prepared"])
def test_train_takes_every_form_of_corpus(
    run: Callable[..., Outcome], dates: Path, tmp_path: Path, form: str
) -> None:
    pairs = [json.loads(line) for line in (dates / "train.jsonl").read_text().splitlines()][:50]
    stdin, where = b"", ""
    if form == "tsv":
        where = str(tmp_path / "c.tsv")
        Path(where).write_text("".join(f"{p['src']}\t{p['trg']}\n" for p in pairs))
    elif form == "parallel":
        for side in ("src", "trg"):
            (tmp_path / f"c.{side}").write_text("".join(f"{p[side]}\n" for p in pairs))
        where = f"{tmp_path / 'c.src'},{tmp_path / 'c.trg'}"
    elif form == "gzip":
        where = str(tmp_path / "c.jsonl.gz")
        Path(where).write_bytes(gzip.compress("".join(json.dumps(p) + "\n" for p in pairs).encode()))
    elif form == "prepared":
        prepared = tmp_path / "prepared"
        done = run(
            "prepare",
            "--train",
            dates / "train.jsonl",
            "--valid",
            dates / "valid.jsonl",
            "--out",
            prepared,
            *SETS,
        )
        assert done.code == 0, done.err
        where = str(prepared / "train")
    else:
        where, stdin = "-", "".join(json.dumps(p) + "\n" for p in pairs).encode()
    valid = str(tmp_path / "prepared" / "valid") if form == "prepared" else str(dates / "valid.jsonl")
    arguments = [
        "--train",
        where,
        "--valid",
        valid,
        "--out",
        tmp_path / "run",
        "--preset",
        "tiny",
        "--device",
        "cpu",
    ]
    done = run("train", "difformer", *arguments, *SETS, stdin=stdin)
    assert done.code == 0, done.err
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_a_config_and_assignments_change_settings_and_tensorboard_is_written(
    run: Callable[..., Outcome], dates: Path, tmp_path: Path
) -> None:
    config = tmp_path / "c.yaml"
    optim = "optim:\n  steps: 50\n  ema_decay: 0.5\n"
    config.write_text(f"dropout: 0.25\n{optim}loggers: tensorboard\nprecision: bfloat16\n")
    done = run(
        *("train", "difformer", "--train", dates / "train.jsonl", "--valid", dates / "valid.jsonl"),
        *("--out", tmp_path / "run", "--preset", "tiny", "--device", "cpu", "--config", config, *SETS),
    )
    assert done.code == 0, done.err
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert settings["model"]["dropout"] == 0.25
    assert (settings["optim"]["steps"], settings["optim"]["ema_decay"]) == (3, 0.5)
    assert list((tmp_path / "run" / "tensorboard").iterdir())


def test_bad_lines_can_be_skipped_and_are_counted(
    run: Callable[..., Outcome], dates: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_bytes((dates / "train.jsonl").read_bytes() + b'{"src": "a"}\nnot json\n\xff\xfe\n')
    done = run(
        *(
            "train",
            "difformer",
            "--train",
            corpus,
            "--valid",
            dates / "valid.jsonl",
            "--out",
            tmp_path / "run",
        ),
        *("--preset", "tiny", "--device", "cpu", "--skip-bad", *SETS),
    )
    assert done.code == 0, done.err
    assert "200 pairs, 3 skipped" in done.err


@pytest.mark.parametrize(
    "value",
    [
        "lr=-1",
        "betas=0.9,1",
        "seed=-1",
        "clip_norm=-1",
        "warmup=-1",
        "weight_decay=-1",
        "encoder_layers=-1",
        "embedding_dim=0",
        "ffn_dim=0",
        "generation.steps=0",
        "length_beam=0",
        "noise_beam=0",
        "num_timesteps=0",
    ],
)
def test_numbers_without_sense_are_refused_before_anything_is_written(
    run: Callable[..., Outcome], dates: Path, tmp_path: Path, value: str
) -> None:
    files = ["--train", dates / "train.jsonl", "--valid", dates / "valid.jsonl", "--out", tmp_path / "run"]
    done = run("train", "difformer", "--preset", "tiny", *files, *SETS, "--set", value)
    assert done.code == 1
    assert done.err.startswith(f"noise2text: The setting {value.partition('=')[0].rpartition('.')[2]} ")
    assert not (tmp_path / "run").exists()


def test_an_empty_line_among_pairs_is_called_so(run: Callable[..., Outcome], tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"src": "a", "trg": "b"}\n\n{"src": "c", "trg": "d"}\n')
    done = run("train", "difformer", "--train", pairs, "--valid", pairs, "--out", tmp_path / "run")
    assert done.code == 1
    assert f"{pairs}, line 2: the line is empty; " in done.err


def test_others_may_read_a_model_as_its_owner_lets_them(model: Path) -> None:
    rights = {path.name: path.stat().st_mode for path in model.rglob("*") if path.is_file()}
    assert {rights["model.safetensors"], rights["training.safetensors"]} == {rights["config.json"]}


def test_standard_input_is_not_both_corpora(run: Callable[..., Outcome], tmp_path: Path) -> None:
    files = ["--train", "-", "--valid", "-", "--out", tmp_path / "run"]
    done = run("train", "difformer", "--preset", "tiny", *files, stdin=b'{"src": "a", "trg": "b"}\n')
    assert done.code == 1
    assert "not both" in done.err
    assert not (tmp_path / "run").exists()


def test_train_and_evaluate_choose_the_columns_of_a_table_and_resume_needs_no_files(
    run: Callable[..., Outcome], dates: Path, tmp_path: Path
) -> None:
    pairs = [json.loads(line) for line in (dates / "train.jsonl").read_text().splitlines()][:30]
    table, out = tmp_path / "c.csv", tmp_path / "run"
    rows = [f'{number},"{pair["trg"]}","{pair["src"]}"\n' for number, pair in enumerate(pairs)]
    table.write_text("nr,iso,written\n" + "".join(rows))
    ask = ["train", "difformer", "--out", out, "--preset", "tiny", "--device", "cpu", *SETS]
    chosen = ["--fields", "written,iso"]
    done = run(*ask, "--train", table, "--valid", table, *chosen)
    assert done.code == 0, done.err
    assert "30 pairs, 0 skipped" in done.err
    refused = run(*ask)
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "give a file with --train" in refused.err
    resumed = run(*ask, "--resume")
    assert resumed.code == 0, resumed.err
    changed = run(*ask, "--resume", "--valid", dates / "valid.jsonl")
    assert changed.code == 1
    assert "was started with --valid" in changed.err
    hyp = tmp_path / "hyp.txt"
    hyp.write_text("".join(f"{pair['trg']}\n" for pair in pairs))
    scored = run("evaluate", "--hyp", hyp, "--ref", table, *chosen, "--metrics", "bleu", "--json")
    assert json.loads(scored.out)["bleu"]["score"] == pytest.approx(100), scored.err


def test_resume_without_a_run_says_what_to_do(run: Callable[..., Outcome], tmp_path: Path) -> None:
    refused = run("train", "difformer", "--out", tmp_path / "none", "--resume")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "no run that can be resumed" in refused.err
