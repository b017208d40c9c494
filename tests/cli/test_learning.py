"""Commands that make models, from every form of corpus."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from noise2text.cli import main

from .conftest import SETS, Outcome


def test_help_and_import_come_without_torch() -> None:
    code = (
        "import sys, noise2text, noise2text.cli; sys.argv = ['noise2text', '--help']\n"
        "try: noise2text.cli.main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'tokenizers', 'sacrebleu', 'babel', 'safetensors'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for command in (
        "train",
        "train-classifier",
        "generate",
        "evaluate",
        "rescale",
        "inspect",
        "prepare",
        "synth",
        "demo",
        "recipes",
        "distill",
        "compare",
        "published",
        "report",
    ):
        assert command in done.stdout


@pytest.mark.parametrize(("argument", "code"), [("--version", 0), ("--nonsense", 2)])
def test_one_of_several_processes_leaves_before_the_interpreter_ends(argument: str, code: int) -> None:
    """Threads of gloo that let go of a tensor while the interpreter ends would abort it."""
    program = (
        "import atexit, sys, noise2text.cli\n"
        f"atexit.register(print, 'the end', flush=True); sys.argv = ['noise2text', {argument!r}]\n"
        "noise2text.cli.main()\n"
    )
    ends = {}
    for world in ("1", "2"):
        environment = os.environ | {"RANK": "0", "WORLD_SIZE": world}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code
        assert ("noise2text" in done.stdout) == (code == 0)
        ends[world] = "the end" in done.stdout
    assert ends == {"1": True, "2": False}


def test_one_of_several_processes_can_leave_without_an_output(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(sys, "argv", ["noise2text", "--version"])
    monkeypatch.setattr(sys, "stdout", None)  # as `>&-` leaves it
    with pytest.raises(SystemExit):
        main()
    assert codes == [0]


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


def test_a_prepared_corpus_of_longer_pairs_is_refused_before_anything_is_written(
    run: Callable[..., Outcome], dates: Path, tmp_path: Path
) -> None:
    files = ("--train", dates / "train.jsonl", "--valid", dates / "valid.jsonl")
    made = run("prepare", *files, "--out", tmp_path / "prepared", "--preset", "tiny", *SETS)
    assert made.code == 0, made.err
    given = ("--train", tmp_path / "prepared" / "train", "--valid", tmp_path / "prepared" / "valid")
    more = (*SETS, "--set", "max_source=9")
    done = run("train", "difformer", *given, "--out", tmp_path / "run", "--preset", "tiny", *more)
    assert done.code == 1
    assert "max_source" in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "run").exists()


def test_a_config_and_assignments_change_settings_and_tensorboard_is_written(
    run: Callable[..., Outcome], dates: Path, tmp_path: Path
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("dropout: 0.25\nsteps: 50\ntensorboard: true\nprecision: bfloat16\nema: 0.5\n")
    done = run(
        *("train", "difformer", "--train", dates / "train.jsonl", "--valid", dates / "valid.jsonl"),
        *("--out", tmp_path / "run", "--preset", "tiny", "--device", "cpu", "--config", config, *SETS),
    )
    assert done.code == 0, done.err
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert (settings["dropout"], settings["steps"], settings["ema"]) == (0.25, 3, 0.5)
    assert list((tmp_path / "run" / "tensorboard").iterdir())


def test_a_classifier_is_trained_and_steers_by_command(
    run: Callable[..., Outcome], model: Path, tmp_path: Path
) -> None:
    assert run("synth", "days", "--out", tmp_path, "--pairs", 50).code == 0
    files = ["--train", tmp_path / "train.jsonl", "--valid", tmp_path / "valid.jsonl"]
    done = run(
        *("train-classifier", model, *files, "--out", tmp_path / "guide", "--device", "cpu"),
        *("--set=steps=2", "--set=batch=4"),
    )
    assert done.code == 0, done.err
    assert "valid accuracy t=0.1" in done.err
    fast = [
        "--input",
        "-",
        "--steps",
        3,
        "--stop-early",
        0,
        "--length-beam",
        1,
        "--guide",
        tmp_path / "guide",
    ]
    done = run("generate", model, *fast, "--class", "may", "--guide-rate", 5, stdin=b"1957\n1987\n")
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) == 2
    done = run("generate", model, *fast, "--class", "mai", stdin=b"1957\n")
    assert (done.code, done.out) == (1, "")
    assert "no class 'mai'" in done.err


def test_synth_writes_three_files(run: Callable[..., Outcome], tmp_path: Path) -> None:
    assert run("synth", "dates", "--out", tmp_path / "d", "--pairs", 20, "--seed", 1).code == 0
    assert {file.name for file in (tmp_path / "d").iterdir()} == {"train.jsonl", "valid.jsonl", "test.jsonl"}


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


def test_compare_and_distill_by_command(
    run: Callable[..., Outcome], model: Path, dates: Path, tmp_path: Path
) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join((dates / "test.jsonl").read_text().splitlines(keepends=True)[:5]))
    out = tmp_path / "comparison"
    done = run("compare", model, "--test", few, "--out", out, "--published", "qqp", "--device", "cpu")
    assert done.code == 0, done.err
    assert done.out == (out / "comparison.md").read_text()
    assert done.out.startswith("# Comparison on few.jsonl, 5 sentences")
    wrong = run("compare", "--test", few, "--out", out)
    assert wrong.code == 1
    assert "nothing to compare" in wrong.err
    corpus = tmp_path / "distilled.jsonl"
    command = ["distill", model, "--input", few, "--output", corpus, "--device", "cpu"]
    done = run(*command, "--steps", "2", "--stop-early=0")
    assert done.code == 0, done.err
    assert f"{corpus}:" in done.err
    assert corpus.exists()
    wrong = run(*command, "--beam", "5")
    assert wrong.code == 1
    assert "no setting 'beam'" in wrong.err


def test_the_demo_replaces_nothing_but_a_demo(run: Callable[..., Outcome], tmp_path: Path) -> None:
    """A folder of one's own may well have something called corpus in it."""
    (tmp_path / "corpus").mkdir()
    mine = tmp_path / "thesis.txt"
    mine.write_text("precious")
    outcome = run("demo", "--out", tmp_path)
    assert outcome.code == 1
    assert "was not made by the demo" in outcome.err
    assert mine.read_text() == "precious"
    outcome = run("demo", "--out", mine)
    assert outcome.code == 1
    assert "is a file" in outcome.err


@pytest.mark.parametrize("command", ["train", "prepare", "train-classifier"])
def test_a_file_in_the_place_of_the_folder_is_one_sentence_and_stays(
    run: Callable[..., Outcome], dates: Path, model: Path, tmp_path: Path, command: str
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    arguments: dict[str, list[object]] = {"train": ["difformer"], "prepare": [], "train-classifier": [model]}
    files = ["--train", dates / "train.jsonl", "--valid", dates / "valid.jsonl", "--out", taken]
    done = run(command, *arguments[command], *files)
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith(f"noise2text: {taken} ")
    assert taken.read_text() == "mine"


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
        "generation_steps=0",
        "length_beam=0",
        "noise_beam=0",
        "diffusion_steps=0",
    ],
)
def test_numbers_without_sense_are_refused_before_anything_is_written(
    run: Callable[..., Outcome], dates: Path, tmp_path: Path, value: str
) -> None:
    files = ["--train", dates / "train.jsonl", "--valid", dates / "valid.jsonl", "--out", tmp_path / "run"]
    done = run("train", "difformer", "--preset", "tiny", *files, *SETS, "--set", value)
    assert done.code == 1
    assert done.err.startswith(f"noise2text: The setting {value.partition('=')[0]} ")
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
