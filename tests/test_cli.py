"""The commands: what they print, what they refuse, and that help comes at once."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noise2text.cli import main
from noise2text.recipes import save, settings_of

from .conftest import SMALL


class Outcome:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """A function that runs a command as the shell would."""

    def call(*arguments: object, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["noise2text", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code: Any = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        captured = capsys.readouterr()
        return Outcome(int(code), captured.out, captured.err)

    return call


SETS = [f"--set={name}={value}" for name, value in (SMALL | {"steps": 3, "save_every": 2}).items()]


@pytest.fixture(scope="module")
def model(dates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was trained for three steps."""
    from noise2text import train

    out = tmp_path_factory.mktemp("models") / "run"
    changes = SMALL | {"steps": 3, "save_every": 2}
    files: dict[str, Any] = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    train("difformer", out=out, preset="tiny", changes=changes, device="cpu", **files)
    return out


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
    ):
        assert command in done.stdout


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
    config.write_text("dropout: 0.25\nsteps: 50\ntensorboard: true\nprecision: bfloat16\nema: 0.5\n")
    done = run(
        *("train", "difformer", "--train", dates / "train.jsonl", "--valid", dates / "valid.jsonl"),
        *("--out", tmp_path / "run", "--preset", "tiny", "--device", "cpu", "--config", config, *SETS),
    )
    assert done.code == 0, done.err
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert (settings["dropout"], settings["steps"], settings["ema"]) == (0.25, 3, 0.5)
    assert list((tmp_path / "run" / "tensorboard").iterdir())


def test_generate_writes_a_line_for_each_line(
    run: Callable[..., Outcome], model: Path, tmp_path: Path
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("sunday, 7 april 1957\n\n12. mai 2001\n")
    fast = ["--steps", 3, "--stop-early", 1, "--length-beam", 2, "--noise-beam", 1]
    done = run("generate", model, "--input", source, *fast)
    assert done.code == 0, done.err
    lines = done.out.split("\n")
    assert len(lines) == 4
    assert lines[1] == ""
    assert lines[0] != ""
    to_file = run("generate", model, "--input", source, "--output", tmp_path / "out.txt", "--batch", 1, *fast)
    assert to_file.out == ""
    assert (tmp_path / "out.txt").read_text() == done.out
    from_stdin = run("generate", model, "--input", "-", *fast, stdin=source.read_bytes())
    assert from_stdin.out == done.out


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


def test_generate_fills_in_a_template(run: Callable[..., Outcome], model: Path) -> None:
    arguments = ["--input", "-", "--template", "19___{2}-___", "--steps", 3, "--stop-early", 1]
    done = run("generate", model, *arguments, stdin=b"sunday, 7 april 1957\n12. mai 2001\n")
    assert done.code == 0, done.err
    assert all(re.fullmatch("19..-.+", line) for line in done.out.splitlines())


def test_sample_writes_pairs_as_a_corpus(
    run: Callable[..., Outcome], model: Path, dates: Path, tmp_path: Path
) -> None:
    from noise2text import train

    files: dict[str, Any] = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    small = {name: value for name, value in SMALL.items() if not name.endswith("coder_layers")}
    out, pairs = tmp_path / "run", tmp_path / "pairs.jsonl"
    train("diffusion-lm", out=out, preset="tiny", changes=small | {"steps": 2}, device="cpu", **files)
    done = run(
        "sample", out, "--count", 3, "--steps", 2, "--source", "7 mai", "--target", "19___", "--output", pairs
    )
    assert done.code == 0, done.err
    records = [json.loads(line) for line in pairs.read_text().splitlines()]
    assert len(records) == 3
    assert all(record["src"] == "7 mai" and record["trg"].startswith("19") for record in records)
    refused = run("sample", model, "--count", 3)
    assert refused.code == 1
    assert "writes targets, not sources" in refused.err


@pytest.fixture(scope="module")
def teacher(dates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An autoregressive model that was trained for three steps."""
    from noise2text import train
    from noise2text.recipes import RECIPES

    out = tmp_path_factory.mktemp("models") / "teacher"
    known = {field.name for field in dataclasses.fields(RECIPES["transformer"].settings("tiny"))}
    changes = {name: value for name, value in SMALL.items() if name in known} | {"steps": 3}
    files: dict[str, Any] = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    train("transformer", out=out, preset="tiny", changes=changes, device="cpu", **files)
    return out


def test_a_teacher_picks_the_candidate_it_finds_likeliest(
    run: Callable[..., Outcome], model: Path, teacher: Path
) -> None:
    import noise2text
    from noise2text.system import Autoregressive

    fast = ["--steps", 3, "--stop-early", 1, "--length-beam", 6, "--noise-beam", 2, "--device", "cpu"]
    ask = ["generate", model, "--input", "-", *fast]
    judge = noise2text.load(teacher, device="cpu")
    assert isinstance(judge, Autoregressive)
    candidates = (
        noise2text.load(model, device="cpu")
        .generate(["7 april 1957"], steps=3, stop_early=1, length_beam=6, noise_beam=2)
        .candidates[0]
    )
    for by in ("mean", "sum"):
        done = run(
            *ask, "--select", "teacher", "--teacher", teacher, "--likelihood", by, stdin=b"7 april 1957\n"
        )
        assert done.code == 0, done.err
        scores = judge.likelihood(["7 april 1957"] * len(candidates), candidates, per_token=by == "mean")
        assert done.out.rstrip("\n") == candidates[scores.index(max(scores))]


def test_int8_is_for_the_model_and_not_for_its_teacher(
    run: Callable[..., Outcome], model: Path, teacher: Path
) -> None:
    few = ["--steps", 2, "--stop-early", 0, "--device", "cpu", "--precision", "int8"]
    judged = ["--select", "teacher", "--teacher", teacher]
    done = run("generate", model, "--input", "-", *few, *judged, stdin=b"7 april 1957\n")
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) == 1
    refused = run("generate", teacher, "--input", "-", "--device", "cpu", "--precision", "int8", stdin=b"x\n")
    assert refused.code == 1
    assert "int8 is for diffusion models on a CPU" in refused.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--select", "teacher"], "--teacher DIR"),
        (["--teacher", "T"], "--select teacher"),
        (["--select", "mbr", "--teacher", "T"], "--select teacher"),
        (["--select", "teacher", "--teacher", "M"], "cannot say how likely"),
        (["--select", "teacher", "--teacher", "nowhere"], "nowhere"),
        (["--select", "teacher", "--teacher", "T", "--likelihood", "median"], "median"),
    ],
)
def test_a_mistake_about_the_teacher_is_one_sentence(
    run: Callable[..., Outcome], model: Path, teacher: Path, arguments: list[str], named: str
) -> None:
    places = {"M": str(model), "T": str(teacher)}
    done = run("generate", model, "--input", "-", *[places.get(each, each) for each in arguments])
    assert done.code == 1
    assert named in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_an_autoregressive_model_generates_by_its_own_options(
    run: Callable[..., Outcome], teacher: Path
) -> None:
    ask = ["generate", teacher, "--input", "-", "--device", "cpu"]
    searched = run(*ask, "--beam", 2, "--length-penalty", 0.6, stdin=b"7 april\n")
    assert searched.code == 0, searched.err
    drawn = [
        run(*ask, "--samples", 1, "--temperature", 2, "--seed", seed, stdin=b"7 april\n") for seed in (1, 2)
    ]
    assert drawn[0].out != drawn[1].out
    refused = run(*ask, "--noise-beam", 3, stdin=b"7 april\n")
    assert refused.code == 1
    assert "no setting 'noise_beam'" in refused.err
    assert "length_penalty" in run("inspect", teacher).out


def test_trace_prints_the_text_at_every_step(
    run: Callable[..., Outcome], model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.txt"
    done = run(
        *("generate", model, "--input", "-", "--trace", "--steps", 4, "--stop-early", 1, "--output", out),
        stdin=b"7 april\n",
    )
    assert done.out.count("t=") == 3
    assert done.out.splitlines()[-1].endswith(out.read_text().strip())


def test_an_input_that_is_too_long_is_cut_and_said(run: Callable[..., Outcome], model: Path) -> None:
    done = run("generate", model, "--input", "-", "--steps", 2, "--stop-early", 0, stdin=b"1" * 200 + b"\n")
    assert done.code == 0
    assert "1 of 1 inputs were longer than 48 tokens" in done.err


def test_evaluate_prints_scores_with_signatures(run: Callable[..., Outcome], tmp_path: Path) -> None:
    hyp, ref, src = tmp_path / "h.txt", tmp_path / "r.jsonl", tmp_path / "s.txt"
    hyp.write_text("the cat sat on the mat\na dog barks\n")
    ref.write_text('{"trg": "the cat sat on the mat"}\n{"trg": "the dog barks", "refs": ["a hound barks"]}\n')
    src.write_text("die katze\nder hund\n")
    done = run("evaluate", "--hyp", hyp, "--ref", ref, "--src", src, "--json")
    result = json.loads(done.out)
    assert 0 < result["bleu"]["score"] < 100
    assert "version" in result["bleu"]["signature"]
    assert result["exact_match"]["score"] == 50
    assert result["copy_source"]["bleu"]["score"] < result["bleu"]["score"]
    plain = run("evaluate", "--hyp", hyp, "--ref", ref)
    assert "version" in plain.out


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


def test_synth_writes_three_files(run: Callable[..., Outcome], tmp_path: Path) -> None:
    assert run("synth", "dates", "--out", tmp_path / "d", "--pairs", 20, "--seed", 1).code == 0
    assert {file.name for file in (tmp_path / "d").iterdir()} == {"train.jsonl", "valid.jsonl", "test.jsonl"}


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


def test_what_was_already_written_is_not_lost(
    run: Callable[..., Outcome], model: Path, tmp_path: Path
) -> None:
    """A bad line in the middle of the input ends the job after the lines before it."""
    source = tmp_path / "in.jsonl"
    source.write_text('{"src": "7 april"}\n' * 16 + "broken\n")
    out = tmp_path / "out.txt"
    done = run(
        "generate", model, "--input", source, "--output", out, "--batch", 1, "--steps", 2, "--stop-early", 0
    )
    assert done.code == 1
    assert "line 17" in done.err
    assert len(out.read_text().splitlines()) == 16


def test_a_model_folder_can_be_moved(run: Callable[..., Outcome], model: Path, tmp_path: Path) -> None:
    import noise2text

    recipe, settings = settings_of(model)
    save(tmp_path / "moved", noise2text.load(model, device="cpu"), recipe=recipe.name, settings=settings)
    arguments = ["--input", "-", "--steps", 2, "--stop-early", 0]
    here = run("generate", model, *arguments, stdin=b"7 april\n").out
    assert run("generate", tmp_path / "moved", *arguments, stdin=b"7 april\n").out == here


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
