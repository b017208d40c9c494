"""Whatever standard input and output are: a full disk, a reader that leaves, closed, of another encoding."""

from __future__ import annotations

import os
import pty
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from noise2text.cli.output import escape_controls

from .conftest import Outcome

FAST = (
    "--steps",
    "2",
    "--length-beam",
    "1",
    "--noise-beam",
    "1",
    "--device",
    "cpu",
    "--precision",
    "float32",
)
LATIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def shell(command: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run `noise2text ARGUMENTS` as part of a command of the shell, in the place of N."""
    words = [sys.executable, "-m", "noise2text", *map(str, arguments)]
    return subprocess.run(
        ["bash", "-c", command.replace("N", shlex.join(words))],
        env=os.environ | {"PYTHONUNBUFFERED": ""} | environment,  # as where nobody has set it
        capture_output=True,
        check=False,
    )


def test_a_full_disk_behind_standard_output_is_one_sentence(model: Path) -> None:
    for arguments in (["--version"], ["config", "difformer"], ["generate", model, "7 april", *FAST]):
        done = shell("N > /dev/full", *arguments)
        assert done.returncode == 1
        assert done.stderr.decode().count("\n") == 1
        assert b"standard output cannot be read or written (No space left on device)" in done.stderr


def test_a_reader_that_leaves_ends_the_command_without_a_word() -> None:
    done = shell("set -o pipefail; N | head -1", "config", "difformer")
    assert done.returncode in (0, 1)
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""
    for unbuffered in ("", "1"):  # a reader that has left before anything is written
        done = shell("set -o pipefail; N | true", "config", "difformer", PYTHONUNBUFFERED=unbuffered)
        assert (done.returncode, done.stderr) == (1, b"")


def test_texts_without_a_standard_output_are_not_lost_silently(model: Path, tmp_path: Path) -> None:
    done = shell("N >&-", "generate", model, "7 april", *FAST)
    assert done.returncode == 1
    assert done.stderr == b"noise2text: There is no standard output to write to: give --output FILE.\n"
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("7 april\n")
    done = shell("N >&- 2>&- <&-", "generate", model, "--input", source, "--output", out, *FAST)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"There is no standard input" in shell("N <&-", "chat", model, *FAST).stderr
    assert len(out.read_bytes().splitlines()) == 1


def test_messages_of_a_closed_standard_error_are_not_texts(model: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    done = shell("N 2>&-", "generate", model, "--input", empty, *FAST)
    assert (done.returncode, done.stdout) == (0, b"")


def test_a_folder_whose_name_is_no_text_can_be_written_and_read(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/a b\n\xff\xc3\xa4"
    made = shell("N", "synth", "dates", "--pairs", 20, "--out", os.fsdecode(folder))
    assert (made.returncode, made.stderr) == (0, b"")
    assert b"\\udcff" in made.stdout
    trained = os.fsdecode(folder + b"/train.jsonl")
    out = os.fsdecode(folder + b"/prepared")
    done = shell("N", "prepare", "--train", trained, "--valid", trained, "--out", out)
    assert done.returncode == 0, done.stderr
    assert os.path.exists(folder + b"/prepared/train/tokens.bin")


def test_a_model_needs_a_name_in_utf_8_and_says_so_before_it_is_trained(
    run: Callable[..., Outcome], dates: Path, model: Path, tmp_path: Path
) -> None:
    """safetensors writes weights under another name, but cannot read them."""
    odd = tmp_path / "\udcff"
    files = ("--train", dates / "train.jsonl", "--valid", dates / "valid.jsonl")
    fast = ("noise_factor=2", "optim.steps=1", "validation_sentences=1")
    short = ("--preset", "tiny", *(f"--set={setting}" for setting in fast))
    shutil.copytree(model, tmp_path / "\udcfe")
    for command in (("train", "difformer", *files, *short, "--out", odd), ("inspect", tmp_path / "\udcfe")):
        refused = run(*command)
        assert (refused.code, refused.err.count("\n")) == (1, 1)
        assert "is not a name in UTF-8" in refused.err
    assert not odd.exists()
    (tmp_path / "\udcfd").write_text("7 april\n")
    out = tmp_path / "out\udcff.txt"
    done = run("generate", model, "--input", tmp_path / "\udcfd", "--output", out, *FAST)
    assert done.code == 0, done.err
    assert len(out.read_text().splitlines()) == 1


@pytest.mark.parametrize("environment", [{}, LATIN])
def test_a_text_is_utf_8_in_every_locale_and_other_bytes_are_refused(
    model: Path, environment: dict[str, str]
) -> None:
    usual = shell("N", "generate", model, "7 märz 1957", *FAST)
    assert usual.returncode == 0, usual.stderr
    assert shell("N", "generate", model, "7 märz 1957", *FAST, **environment).stdout == usual.stdout
    asked = shell("printf '7 m\\xc3\\xa4rz 1957\\n' | N", "chat", model, *FAST, **environment)
    assert asked.stdout == usual.stdout
    refused = shell("N $'7 m\\xe4rz'", "generate", model, *FAST, **environment)
    assert refused.returncode == 1
    assert refused.stderr == b"noise2text: Text 1 is not a string that UTF-8 can hold; correct or drop it.\n"
    asked = shell("printf '7 m\\xe4rz\\n7 m\\xc3\\xa4rz 1957\\n' | N", "chat", model, *FAST, **environment)
    first, second = asked.stdout.splitlines(keepends=True)
    assert (asked.returncode, asked.stderr) == (0, b"")
    assert first.startswith(b"Text 1 is not a string")
    assert second == usual.stdout


def test_a_number_of_thousands_of_digits_is_no_seed(run: Callable[..., Outcome], model: Path) -> None:
    done = run("chat", model, *FAST, stdin=b":seed " + b"9" * 5000 + b"\n:settings\n")
    assert done.code == 0, done.err
    refused, settings = done.out.splitlines()
    assert refused.startswith(":seed takes a whole number, not '999")
    assert len(refused) < 200
    assert "seed = 0" in settings


def test_a_terminal_does_not_obey_a_text() -> None:
    """What a stranger's model writes may move the cursor or change the title of the window."""
    code = "from noise2text.cli.output import print_text; print_text('a\\x1b]0;b\\x07\\x9b2J\\tä\\u200d')"
    terminal, end = pty.openpty()
    subprocess.run([sys.executable, "-c", code], stdout=end, check=True)
    os.close(end)
    assert os.read(terminal, 1000).decode().strip() == "a\\x1b]0;b\\x07\\x9b2J\tä\u200d"
    os.close(terminal)
    assert escape_controls("a\x1b") == "a\x1b"  # a file gets what was written
