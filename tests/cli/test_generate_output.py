"""What is finished is kept, an output appears whole and has one writer, a slow input is answered at once."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import noise2text
from noise2text.commands.output_file import open_output_file, require_same_job
from noise2text.core.errors import Problem

from .conftest import Outcome

FAST = ("--steps", 2, "--length-beam", 1, "--noise-beam", 1, "--batch", 2, "--device", "cpu")
TEXTS = [f"{day} april 19{day + 40}" for day in range(1, 12)]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("input") / "in.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


@pytest.mark.parametrize("finished", [1, 2, 5, 10])
def test_a_stopped_job_goes_on_with_the_same_rows(
    run: Callable[..., Outcome],
    model: Path,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    finished: int,
) -> None:
    """Ctrl-C keeps what is finished, wherever in a window it comes."""
    out, draft = tmp_path / "out.txt", tmp_path / "out.txt.draft"
    ask = ("generate", model, "--input", source, "--output", out, *FAST)
    whole = run(*ask[:4], *FAST).out
    with monkeypatch.context() as patched:
        _stop_after(finished, patched)
        stopped = run(*ask)
    assert stopped.code == 130
    assert f"{finished} texts are kept in {draft}; add --resume" in stopped.err
    assert not out.exists()
    assert draft.read_text() == "".join(whole.splitlines(keepends=True)[:finished])
    refused = run(*ask)
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert f"{finished} finished texts" in refused.err
    with draft.open("a") as half:
        half.write("19")  # the process was killed while it wrote
    resumed = run(*ask, "--resume")
    assert resumed.code == 0, resumed.err
    assert out.read_text() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.txt.job.json", "out.txt"]


def _stop_after(lines: int, patched: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C before the line after these."""
    from noise2text.commands.output_file import OutputLines

    write = OutputLines.write

    def write_or_stop(self: OutputLines, line: str) -> None:
        if self.written == lines:
            raise KeyboardInterrupt
        write(self, line)

    patched.setattr(OutputLines, "write", write_or_stop)


def test_a_job_is_resumed_with_its_own_options(
    run: Callable[..., Outcome], model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.txt"
    ask = ("generate", model, "--input", source, "--output", out, "--resume", *FAST)
    with monkeypatch.context() as patched:
        _stop_after(3, patched)
        assert run(*ask).code == 130
    for other in (("--seed", 1), ("--steps", 3), ("--json",)):
        refused = run(*ask, *other)
        assert (refused.code, refused.err.count("\n")) == (1, 1)
        assert "resume with the same options" in refused.err
    for without in (("generate", model, "7 april", "--output", out), ("generate", model, "--input", source)):
        assert "--resume goes on with an --output of an --input" in run(*without, "--resume").err
    assert run(*ask, "--batch", 3).code == 0  # the batch does not change the texts
    resumed = out.read_text()
    out.unlink()
    assert run(*ask).code == 0
    assert out.read_text() == resumed


def test_settings_of_a_resumed_job_count_by_their_effect(
    run: Callable[..., Outcome], model: Path, source: Path, tmp_path: Path
) -> None:
    """However they are written: two ways to say the same thing, and the model's own value."""
    ask = ("generate", model, "--input", source, "--output", tmp_path / "out.txt")
    config = noise2text.load(model, device="cpu").generation_config
    assert run(*ask, *FAST).code == 0
    assigned = ("--set", "steps=2", "--set", "length_beam=1", "--set", "noise_beam=1")
    for same in (assigned, (*FAST, f"--set=eta={config.eta}0"), (*FAST, "--solver", config.solver)):
        done = run(*ask, *same, "--resume")
        assert (done.code, "is finished and stays as it is" in done.err) == (0, True), done.err
    for other in (("--noise-beam", 2), ("--set", "eta=0.5")):
        refused = run(*ask, *FAST, *other, "--resume")
        assert (refused.code, "was made with settings = {" in refused.err) == (1, True), refused.err


def test_candidates_for_several_texts_count_as_settings(
    run: Callable[..., Outcome], model: Path, source: Path, tmp_path: Path
) -> None:
    """With --n more candidates are drawn, unless a beam is given, be it the model's own."""
    ask = ("generate", model, "--input", source, "--output", tmp_path / "out.txt", "--steps", 2, "--n", 2)
    beam = noise2text.load(model, device="cpu").generation_config.noise_beam
    assert run(*ask, "--noise-beam", beam).code == 0
    assert "was made with settings = " in run(*ask, "--resume").err
    assert run(*ask, "--noise-beam", beam, "--resume").code == 0


def test_a_job_is_not_resumed_with_other_texts(
    run: Callable[..., Outcome], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the output would answer the texts of before, without a sign."""
    source, out, note = (tmp_path / name for name in ("in.txt", "out.txt", "out.txt.draft.json"))
    source.write_text("\n".join(TEXTS) + "\n")
    ask = ("generate", model, "--input", source, "--output", out, "--resume", *FAST)
    with monkeypatch.context() as patched:
        _stop_after(3, patched)
        assert run(*ask).code == 130
    source.write_text("\n".join(["1 may 1901", *TEXTS[1:]]) + "\n")
    refused = run(*ask)
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "was started with input = '11 texts, SHA-256 " in refused.err
    source.write_text("\n".join(TEXTS) + "\n")
    whole = note.read_text()
    for damage in ("[]", "{", ""):
        note.write_text(damage)
        refused = run(*ask)
        assert (refused.code, refused.err.count("\n")) == (1, 1)
        assert str(note) in refused.err
    note.write_text(whole)
    assert run(*ask).code == 0
    assert out.read_text() == run(*ask[:4], *FAST).out


def test_a_finished_job_is_not_done_again(
    run: Callable[..., Outcome], model: Path, source: Path, tmp_path: Path
) -> None:
    """--resume says so and leaves the file; where it cannot be sure, it refuses."""
    out = tmp_path / "out.txt"
    ask = ("generate", model, "--input", source, "--output", out, *FAST)
    assert run(*ask).code == 0
    before = out.stat()
    done = run(*ask, "--resume", "--batch", 3)
    sentence = f"{out} is finished and stays as it is; leave out --resume to generate it again."
    assert (done.code, done.out, done.err) == (0, "", f"noise2text: {sentence}\n")
    assert "abacus" in run(*ask, "--device", "abacus").err
    assert run(*ask, "--device", "abacus", "--resume").err == done.err, "the model is not loaded"
    copy = tmp_path / "copy.txt"
    copy.write_bytes(source.read_bytes())
    assert run(*ask, "--input", copy, "--resume").err == done.err, "the texts count, not their name"
    for other, named in (
        (("--seed", 1), "was made with numbers = 'seed=0"),
        (("--json",), "was made with format = "),
        (("--input", "-"), "was made with input = "),
    ):
        refused = run(*ask, *other, "--resume")
        assert (refused.code, refused.err.count("\n")) == (1, 1)
        assert named in refused.err
        assert "leave out --resume to generate it again" in refused.err
    assert (out.stat().st_mtime_ns, out.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    (tmp_path / ".out.txt.job.json").rename(tmp_path / "out.txt.draft.json")
    assert run(*ask, "--resume").err == done.err, "as a kill between the last two renames leaves it"
    (tmp_path / "out.txt.draft.json").rename(tmp_path / ".out.txt.job.json")
    (tmp_path / "out.txt.draft.json").write_text("{}")
    assert run(*ask, "--resume").err == done.err, "the note of a draft that was deleted says nothing"
    (tmp_path / "out.txt.draft.json").unlink()
    out.write_text("another text\n" * len(TEXTS))
    assert "has been changed since it was made" in run(*ask, "--resume").err
    (tmp_path / ".out.txt.job.json").unlink()
    refused = run(*ask, "--resume")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "nothing says how it was made" in refused.err
    assert out.read_text() == "another text\n" * len(TEXTS)
    assert run(*ask).code == 0, "without --resume it is generated again"
    assert len(out.read_text().splitlines()) == len(TEXTS)


def test_the_texts_of_a_pipe_are_not_called_finished(
    run: Callable[..., Outcome], model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.txt"
    ask = ("generate", model, "--input", "-", "--output", out, *FAST)
    assert run(*ask, stdin=b"7 april 1941\n").code == 0
    refused = run(*ask, "--resume", stdin=b"8 april 1942\n")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "whether a pipe has the same texts is not known" in refused.err


def test_a_full_disk_is_named_with_the_file() -> None:
    refusal = r"/dev/full cannot be written \(No space left on device\)"
    with pytest.raises(Problem, match=refusal), open_output_file(Path("/dev/full")) as lines:
        lines.write("text")


def test_an_output_has_one_writer(
    run: Callable[..., Outcome], model: Path, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.txt"
    ask = ("generate", model, "--input", source, "--output", out, *FAST)
    with open_output_file(out) as other:
        other.write("of another process")
        refused = run(*ask)
        assert (refused.code, refused.err.count("\n")) == (1, 1)
        assert f"Another process is writing {out}" in refused.err
        assert not out.exists()
    assert out.read_text() == "of another process\n"
    assert run(*ask).code == 0
    assert len(out.read_text().splitlines()) == len(TEXTS)


def write_until_a_bad_line(out: Path, *texts: str, started_with: dict[str, str] | None) -> None:
    with open_output_file(out, started_with=started_with) as lines:
        for text in texts:
            lines.write(text)
        raise Problem("a bad line")


def test_an_older_output_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    out.write_text("old\n")
    with pytest.raises(Problem, match="a bad line"):
        write_until_a_bad_line(out, "new", started_with={})
    assert out.read_text() == "old\n"
    with open_output_file(out, resume=True, started_with={}) as lines:
        assert lines.resumed == 1
        lines.write("newer")
    assert out.read_text() == "new\nnewer\n"
    for started_with in (None, {"numbers": "others"}):
        with pytest.raises(Problem, match="a bad line"):
            write_until_a_bad_line(out, started_with=started_with)
        require_same_job(out, {}, from_pipe=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.txt.job.json", "out.txt"]
    with open_output_file(out) as lines:
        lines.write("of a job that cannot be resumed")
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_a_bad_line_is_found_before_anything_is_generated(
    run: Callable[..., Outcome], model: Path, tmp_path: Path
) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.txt"
    source.write_text('{"src": "7 april"}\n' * 16 + "broken\n")
    done = run("generate", model, "--input", source, "--output", out, *FAST)
    assert done.code == 1
    assert "line 17" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
    piped = run("generate", model, "--input", "-", "--output", out, *FAST, stdin=source.read_bytes())
    assert piped.code == 1
    assert len((tmp_path / "out.txt.draft").read_text().splitlines()) == 14  # 1 + 2 + 4 batches of 2


def test_a_missing_folder_is_found_before_the_model_is_loaded(
    run: Callable[..., Outcome], model: Path, source: Path, tmp_path: Path
) -> None:
    broken = shutil.copytree(model, tmp_path / "model")
    (broken / "model.safetensors").write_bytes(b"no weights")
    assert "model.safetensors" in run("generate", broken, "--input", source, *FAST).err
    out = tmp_path / "missing" / "out.txt"
    done = run("generate", broken, "--input", source, "--output", out, *FAST)
    sentence = f"There is no folder {out.parent} for the output {out}: make it, or name another."
    assert (done.code, done.err) == (1, f"noise2text: {sentence}\n")


@pytest.fixture
def answering(model: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`generate` at a terminal, and the terminal."""
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "noise2text", "generate", str(model), "--input", "-", *map(str, FAST)]
    process = subprocess.Popen(
        command,
        stdin=end,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's `&` ignores it
    )
    os.close(end)
    yield process, terminal
    process.kill()
    process.communicate()
    os.close(terminal)


def test_a_line_is_answered_before_the_next_one_is_written(
    answering: tuple[subprocess.Popen[bytes], int], run: Callable[..., Outcome], model: Path
) -> None:
    process, terminal = answering
    assert process.stdout is not None
    answers = []
    for text in TEXTS[:3]:
        os.write(terminal, text.encode() + b"\n")
        answers.append(process.stdout.readline().decode())  # waits for ever if it is only written at the end
    assert "".join(answers) == run("generate", model, *TEXTS[:3], *FAST).out
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.sub(r"\r?\n", "", err.decode()).endswith("noise2text: Stopped.")
