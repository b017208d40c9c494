"""The root command: its help, its exit, and every mistake as one sentence."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from noise2text.cli import _describe_system_error, app
from noise2text.cli.options import COMMAND_GROUPS

from .conftest import Outcome


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
    listed = re.findall(r"^  ([a-z][a-z-]+)  ", done.stdout, re.MULTILINE)
    assert listed == [name for names in COMMAND_GROUPS.values() for name in names]


def test_a_shell_completes_commands_and_options() -> None:
    code = "import sys, noise2text.cli; sys.argv = ['noise2text']; noise2text.cli.main()"
    for words, expected in (("noise2text gen", "generate"), ("noise2text generate --out", "--output")):
        environment = os.environ | {
            "_NOISE2TEXT_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == [expected], done.stderr


def test_every_command_is_in_one_group_and_explains_itself(run: Callable[..., Outcome]) -> None:
    root = typer.main.get_command(app)
    grouped = [name for names in COMMAND_GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(root.commands)  # type: ignore[attr-defined]
    for command in grouped:
        short, long = (run(command, option) for option in ("-h", "--help"))
        assert (short.code, short.out) == (0, long.out)
        assert f"noise2text {command}" in short.out


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


def test_one_of_several_processes_can_leave_without_an_output() -> None:
    command = f"exec {shlex.quote(sys.executable)} -m noise2text --version >&-"
    environment = os.environ | {"WORLD_SIZE": "2"}
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["train", "diformer", "--train", "T", "--valid", "T", "--out", "O"], "did you mean difformer"),
        (["train", "difformer", "--train", "missing.jsonl", "--valid", "T", "--out", "O"], "missing.jsonl"),
        (["train", "difformer", "--train", "E", "--valid", "T", "--out", "O"], "E"),
        (
            ["train", "difformer", "--train", "T", "--valid", "T", "--out", "O", "--set", "model_dm=3"],
            "model_dim",
        ),
        (
            ["train", "difformer", "--train", "T", "--valid", "T", "--out", "O", "--set", "model_dim"],
            "key=value",
        ),
        (["train", "difformer", "--train", "T", "--valid", "T", "--out", "O", "--preset", "x"], "preset"),
        (["train", "difformer", "--train", "B", "--valid", "T", "--out", "O", "--preset", "tiny"], "line 2"),
        (["generate", "nowhere", "--input", "T"], "nowhere"),
        (["generate", "M", "--input", "missing.txt"], "missing.txt"),
        (["generate", "M", "--input", "T", "--steps", "0"], "steps"),
        (["generate", "M", "--input", "T", "--select", "best"], "select"),
        (["generate", "M", "--input", "T", "--set", "beams=3"], "beams"),
        (["generate", "M", "--input", "T", "--batch", "0"], "batch"),
        (["generate", "M", "--input", "T", "--device", "abacus"], "abacus"),
        (["generate", "M", "--input", "T", "--output", "missing/folder/out.txt"], "no folder missing/folder"),
        (["generate", "M", "--input", "T", "--output", "T/out.txt"], "T is a file"),
        (
            ["sample", "M", "--count", "1", "--output", "missing/out.jsonl"],
            "no folder missing for the output",
        ),
        (["sample", "M", "--count", "0"], "at least 1 pair"),
        (["generate", "M", "--input", "T", "--output", "loop"], "is a link to itself"),
        (["evaluate", "--hyp", "T", "--ref", "E"], "E"),
        (["evaluate", "--likelihood", "M", "--test", "T", "--set", "steps=0"], "whole numbers above 0"),
        (["evaluate", "--likelihood", "M", "--test", "T", "--set", "seed=1"], "no setting 'seed'"),
        (
            ["train", "difformer", "--train", "T", "--out", "T", "--preset", "tiny"],
            "T is a file, so T",
        ),
        (["generate", "a text", "M"], "The model comes first: noise2text generate "),
        (["generate", "a text", "de-en"], "The model comes first: noise2text generate de-en 'a text'."),
        (["generate", "word " * 80, "de-en"], "The model comes first: noise2text generate de-en "),
        (["generate", "T", "de-en"], "The model comes first: noise2text generate de-en --input T."),
        (["generate", "de-em", "a text"], "There is no model folder de-em; did you mean de-en?"),
        (["generate", "DE-EN", "a text"], "There is no model folder DE-EN; did you mean de-en?"),
        (
            ["generate", "M", "a text", "--batch-size", "4"],
            "no option --batch-size; did you mean --batch?",
        ),
        (["generate", "https://huggingface.co/org/name", "a text"], "given by its address: write org/name."),
        (["convert", "de-en", "O"], "has today's format (2) already: use it as it is"),
        (["chat", "M", "--n", "0"], "n, must be at least 1, not 0"),
        (["chat", "T"], "T is no model folder: name the folder of a model, or de-en."),
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
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path)
    done = run(*[str(model) if argument == "M" else argument for argument in arguments])
    assert done.code == 1, done.err
    assert done.err.startswith("noise2text: ")
    assert named in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert "Traceback" not in done.err
    assert not (tmp_path / "O").exists(), "a mistake leaves nothing behind"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("trian", "There is no command 'trian'; did you mean train? See `noise2text -h`."),
        ("qqqqq", "There is no command 'qqqqq'. See `noise2text -h`."),
        ("synth dats", "There is no command 'dats'; did you mean dates? See `noise2text synth -h`."),
        ("--nonsense", "There is no option --nonsense. See `noise2text -h`."),
        ("train cdcd --otu O", "There is no option --otu; did you mean --out? See `noise2text train -h`."),
        (
            "analyse lengths --output O",
            "There is no option --output; did you mean --hyp? See `noise2text analyse -h`.",
        ),
        *[
            (
                f"{command} cdcd {option} 3",
                f"{command} takes settings as --set NAME=VALUE and has no option {option}; {explanation} "
                f"See `noise2text {command} -h`.",
            )
            for command, option, explanation in (
                ("train", "--seed", "it is the setting run.seed."),
                ("train", "--lr", "it is the setting optim.lr."),
                ("config", "--lr", "it is the setting optim.lr."),
                ("train", "--learning-rate", "it is called optim.lr."),
                ("train", "--steps", "it is the setting optim.steps or generation.steps."),
                ("train", "--epochs", "training counts updates, not epochs: set optim.steps."),
                (
                    "train",
                    "--batch-size",
                    "a batch counts padded tokens, not sentences: set optim.max_tokens.",
                ),
                ("train", "--output-dir", "a run's folder is the argument out."),
            )
        ],
        (
            "train nothing --lr 3",
            "There is no option --lr; settings are given as --set NAME=VALUE. See `noise2text train -h`.",
        ),
        ("vote A B -x", "There is no option -x. See `noise2text vote -h`."),
        ("generate M --input", "The option --input needs a value. See `noise2text generate -h`."),
        ("evaluate --json=3", "The option --json takes no value. See `noise2text evaluate -h`."),
        ("compare M", "compare needs the option --test. See `noise2text compare -h`."),
        ("train --out O", "train needs RECIPE. See `noise2text train -h`."),
        (
            "inspect M a b",
            "inspect does not take so many words: leave out 'a b'. See `noise2text inspect -h`.",
        ),
        ("serve M --port x", "The option --port takes a whole number. See `noise2text serve -h`."),
        ("generate M a --floor x", "The option --floor takes a number. See `noise2text generate -h`."),
    ],
)
def test_what_is_no_command_line_is_one_sentence_with_the_nearest_name(
    run: Callable[..., Outcome], words: str, sentence: str
) -> None:
    done = run(*words.split())
    assert (done.code, done.out, done.err) == (2, "", f"noise2text: {sentence}\n")


def test_a_file_without_its_option_is_told_so(
    run: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "T").write_text("a\n")
    done = run("train", "cdcd", "T", "--out", "O")
    sentence = "train does not take so many words: leave out 'T', or name files by their options."
    assert (done.code, done.err) == (2, f"noise2text: {sentence} See `noise2text train -h`.\n")


def test_a_value_that_is_not_one_of_a_few_is_refused_with_them(run: Callable[..., Outcome]) -> None:
    done = run("evaluate", "--ref", "T", "--format", "jsn")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert all(name in done.err for name in ("--format", "'table'", "'latex'", "`noise2text evaluate -h`"))


def test_a_word_that_is_printed_has_no_control_characters(run: Callable[..., Outcome]) -> None:
    for words in (["--\x1b[1m"], ["\x1b[1m"], ["config", "a", "\x1b[1m"]):
        done = run(*words)
        assert done.code == 2
        assert "\x1b" not in done.err


def test_an_option_of_neither_the_command_nor_the_model_has_the_nearest_of_both(
    run: Callable[..., Outcome], model: Path
) -> None:
    for command in (("generate", model, "7 april"), ("chat", model)):
        for words, named in ((("--step", 5), "--steps"), (("--devise=cpu",), "--device")):
            given = str(words[0]).partition("=")[0]
            done = run(*command, *words)
            see = f"See `noise2text {command[0]} {model} -h`."
            sentence = f"There is no option {given}; did you mean {named}? {see}"
            assert (done.code, done.out, done.err) == (1, "", f"noise2text: {sentence}\n")
    for short in ("n", "steps", "device"):
        done = run("generate", model, "7 april", f"-{short}", 3)
        sentence = (
            f"There is no option -{short}; did you mean --{short}? See `noise2text generate {model} -h`."
        )
        assert (done.code, done.out, done.err) == (1, "", f"noise2text: {sentence}\n")
    for texts in (("--prefix", "-n", "7 april"), ("--", "-n", "-steps")):  # a value, and texts
        assert run("generate", model, "--steps", 3, "--stop-early", 0, *texts).code == 0
    done = run("generate", model, "7 april", "--qqqqq", 5)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "no setting 'qqqqq'; the settings are " in done.err


def test_without_a_word_the_help_is_shown(run: Callable[..., Outcome]) -> None:
    for command in ((), ("synth",)):
        shown = run(*command)
        help = run(*command, "-h")
        assert (shown.out + shown.err).strip() == help.out.strip()


def test_texts_are_utf_8_whatever_the_terminal_speaks() -> None:
    command = [sys.executable, "-m", "noise2text", "config", "difformer"]
    said = [
        subprocess.run(command, env=os.environ | {"PYTHONIOENCODING": name}, capture_output=True, check=True)
        for name in ("utf-8", "ascii")
    ]
    assert said[0].stdout == said[1].stdout
    assert not said[0].stdout.isascii()


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


def test_a_process_whose_peer_has_ended_says_so_in_one_sentence() -> None:
    closed = RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:38361")
    assert "Another process of this run has ended" in (_describe_system_error(closed) or "")
    assert _describe_system_error(RuntimeError("a bug")) is None


def test_only_the_command_that_is_called_is_built() -> None:
    """To build all commands takes longer than all else that --help does."""
    root: Any = typer.main.get_command(app)
    assert root.get_command(None, "train").params
    assert [name for name, command in root.commands.items() if command.params] == ["train"]
