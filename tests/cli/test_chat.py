"""A prompt answers texts, obeys commands, and survives mistakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .conftest import Outcome

FAST = ("--length-beam", 1, "--noise-beam", 1, "--device", "cpu", "--precision", "float32")


def test_texts_are_answered_as_by_generate(run: Callable[..., Outcome], model: Path) -> None:
    typed = b":steps 3\n7 april 1957\n:seed 4\n7 april 1957\n\n"
    done = run("chat", model, *FAST, stdin=typed)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert "steps = 3" in lines[0]
    assert lines[1] == run("generate", model, "7 april 1957", *FAST, "--steps", 3).out.strip()
    assert lines[3] == run("generate", model, "7 april 1957", *FAST, "--steps", 3, "--seed", 4).out.strip()


def test_a_mistake_is_shown_and_changes_nothing(run: Callable[..., Outcome], model: Path) -> None:
    typed = b":stepps 3\n:steps x\n:steps\n:n 0\n:settings\n:quit\n7 april\n"
    done = run("chat", model, *FAST, "--steps", 2, stdin=typed)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert len(lines) == 5
    assert lines[0] == "There is no :stepps; did you mean :steps? :help lists the commands."
    assert "needs a value" in lines[2]
    assert "n = 1, seed = 0" in lines[4]
    assert "steps = 2" in lines[4]


def test_a_wrong_name_gets_a_hint(run: Callable[..., Outcome], model: Path) -> None:
    hints = {
        ":set stpes 3": "There is no command :set; write :steps 3.",
        ":set length-beam=2": "There is no command :set; write :length_beam 2.",
        ":set sed 7": "There is no command :set; write :seed 7.",
        ":set": "There is no command :set; write :steps 10.",
        ":sedd 7": "There is no :sedd; did you mean :seed? :help lists the commands.",
        ":hepl": "There is no :hepl; did you mean :help? :help lists the commands.",
        ":steps": ":steps needs a value, such as :steps 10; :help lists the commands.",
        ":qqqqq": ":qqqqq needs a value, such as :steps 10; :help lists the commands.",
        ":settings": "n = 1, seed = 0",
    }
    done = run("chat", model, "--device", "cpu", stdin="\n".join(hints).encode())
    assert done.out.splitlines() == list(hints.values())
    unknown = run("chat", model, "--device", "cpu", stdin=b":qqqqq 3\n").out
    assert "there is no setting 'qqqqq'; the settings are " in unknown


def test_help_names_the_commands_and_reset_forgets(run: Callable[..., Outcome], model: Path) -> None:
    done = run("chat", model, *FAST, "--n", 3, stdin=b":help\n:reset\n")
    assert ":n 5" in done.out
    assert "Ctrl-D" in done.out
    assert done.out.splitlines()[-1] == "n = 1, seed = 0"


def test_a_wrong_option_ends_before_the_prompt(run: Callable[..., Outcome], model: Path) -> None:
    refused = run("chat", model, "--stepps", 3)
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "did you mean --steps" in refused.err
