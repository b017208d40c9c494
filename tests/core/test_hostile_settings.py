"""Settings that were written to do harm are one short sentence, in little memory and time."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import pytest

from noise2text.core.command_line import parse_assignments, parse_options
from noise2text.core.config import apply_overrides, option
from noise2text.core.config_files import read_config
from noise2text.core.errors import MAX_MESSAGE, Problem, abbreviate, suggest
from noise2text.core.field_values import MAX_INTEGER, Limits
from noise2text.core.plain_yaml import MAX_DEPTH, MAX_YAML_BYTES, parse_yaml
from noise2text.models.registry import find_recipe

MEMORY_LIMIT = 20_000_000
"""Far below what the attacks aim at, in bytes."""


@dataclass(frozen=True)
class Example:
    steps: int = option(5, "how many")
    rate: float = option(0.1, "how fast")
    fast: bool = option(False, "whether")
    name: str = option("a", "who")
    betas: tuple[float, float] = option((0.9, 0.98), "both")


LEVELS = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 10))
ALIAS_BOMB = f"l0: &l0 [x, x, x, x, x, x, x, x, x, x]\n{LEVELS}\n"
MERGES = "\n".join(f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 10)}]}}" for n in range(1, 10))
MERGE_BOMB = f"m0: &m0 {{a: 1, b: 2}}\n{MERGES}\n"
RECURSIVE = "a: &a [*a]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1: 2\n", "name is text, not '1'; quote it"),
        ("on: 2\n", "name is text, not 'on'"),
        ("null: 2\n", "name is text"),
        ("2024-01-02: 2\n", "must hold|no setting"),
        ("? [a, b]\n: 2\n", "name is text, not a list or mapping"),
        ("? {a: b}\n: 2\n", "name is text, not a list or mapping"),
        (f"steps: {'9' * 5000}\n", r"no value of the type int"),
        (f"? {'9' * 5000}\n: 1\n", "name is text"),
        (f"steps: 0x{'f' * 5000}\n", "a number of 20,000 bits"),
        ("steps: !!int x\n", "no value of the type int"),
        ("rate: !!float x\n", "no value of the type float"),
        ("fast: !!bool x\n", "no value of the type bool"),
        ("steps: !!timestamp x\n", "line 1"),
        ("steps: !!python/object/apply:os.system [ls]\n", "line 1"),
        ("steps: !!binary 1\n", "line 1"),
        ("a: " + "[" * 5000 + "]" * 5000 + "\n", f"at most {MAX_DEPTH} levels"),
        ("".join(f"{' ' * n}a:\n" for n in range(300)), f"at most {MAX_DEPTH} levels"),
        (ALIAS_BOMB, "write out what the alias stands for"),
        (MERGE_BOMB, "write out what the alias stands for"),
        (RECURSIVE, "write out what the alias stands for"),
        ("<<: {steps: 7}\n", "no setting"),
        ("!!merge a: {steps: 7}\n", "name is text, not 'a'"),
        ("? !!python/name:os.system\n: 7\n", "name is text"),
        ("steps: 2024-13-45\n", "takes a whole number, not '2024-13-45'"),
        (f"steps: {MAX_INTEGER}\n", "takes a whole number"),
        ("steps: 9.3e18\n", "takes a whole number"),
        ("steps: [1]\n", r"takes a whole number, not \[1\]"),
        ("fast: {a: 1}\n", "takes true or false"),
        ("rate: .nan\n", "takes a number"),
        (f"name: [{'x' * 90_000}]\n", "takes text"),
        (f"betas: [{', '.join(['1'] * 20_000)}]\n", "takes 2 values"),
        ("a: 1\n--- \nb: 2\n", "not plain YAML"),
        ("a: \x00\n", "not plain YAML"),
        ("lr: 1\noptim: {}\nlr: 2\n", "line 3: 'lr' is there twice"),
        ("x" * (MAX_YAML_BYTES + 1), "too large"),
    ],
    ids=lambda value: abbreviate(value[:25]),
)
def test_hostile_yaml_is_one_short_sentence(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    parse_yaml("a: 1", what="it")  # import the library before the memory is measured
    tracemalloc.start()
    try:
        with pytest.raises(Problem, match=message) as problem:
            apply_overrides(Example(), read_config(path), origin=str(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_LIMIT
    assert len(str(problem.value)) <= MAX_MESSAGE
    assert "\n" not in str(problem.value)


def test_an_endless_file_is_not_read_to_its_end() -> None:
    tracemalloc.start()
    with pytest.raises(Problem, match="too large"):
        read_config(Path("/dev/zero"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * MAX_YAML_BYTES


@pytest.mark.parametrize("key", [1, None, 10**6000, ("a", "b"), 1.5, b"steps"], ids=abbreviate)
def test_names_that_are_no_text_are_refused(key: object) -> None:
    with pytest.raises(Problem, match="name is text"):
        apply_overrides(Example(), {key: 1}, origin="here")  # type: ignore[dict-item]


def test_a_nested_value_from_python_is_not_written_out() -> None:
    bomb: list[object] = ["x"]
    for _ in range(40):
        bomb = [bomb] * 10
    for name in ("steps", "rate", "fast", "name", "betas"):
        with pytest.raises(Problem) as problem:
            apply_overrides(Example(), {name: bomb}, origin="here")
        assert len(str(problem.value)) <= MAX_MESSAGE


@pytest.mark.parametrize("name", ["steps", "rate", "fast", "betas", "nothing", "x" * 9_000_000], ids=len)
def test_a_message_never_repeats_a_huge_value(name: str) -> None:
    with pytest.raises(Problem) as problem:
        apply_overrides(Example(), parse_assignments([f"{name}={'7,' * 5_000_000}"]), origin="--set")
    assert len(str(problem.value)) <= MAX_MESSAGE


def test_messages_about_options_are_short() -> None:
    huge = "x" * 1_000_000
    for attempt in (
        lambda: parse_assignments([huge]),
        lambda: parse_options([huge]),
        lambda: parse_options([f"--{huge}"]),
        lambda: Limits(choices=("a", "b")).require(huge, "The setting name"),
    ):
        with pytest.raises(Problem) as problem:
            attempt()
        assert len(str(problem.value)) < 200


def test_every_problem_is_short_and_keeps_its_beginning_and_its_end() -> None:
    problem = Problem(f"The setting {'x' * 10_000} is wrong: write another one.")
    assert len(str(problem)) == MAX_MESSAGE
    assert str(problem).startswith("The setting xxx")
    assert str(problem).endswith("xxx is wrong: write another one.")
    assert str(Problem("x" * MAX_MESSAGE)) == "x" * MAX_MESSAGE


def test_a_message_has_no_control_characters() -> None:
    message = str(Problem("the file \x1b[2Jä\ud800\u2028 is\tbad\nso is b"))
    assert message == "the file \\x1b[2Jä\\ud800\\u2028 is\\tbad\nso is b"


def test_a_long_list_of_names_says_how_many_more_there_are() -> None:
    assert suggest("zzz", ["a", "b"]) == "there are a, b."
    names = [f"name{number}" for number in range(1000)]
    assert suggest("zzz", names).endswith(f"name{suggest('zzz', names).count(',')} and 955 more.")
    config = find_recipe("difformer").preset("tiny")
    with pytest.raises(Problem, match=r"the settings are data\.tokenizer, .* more") as problem:
        config.replace(qqq=1)
    assert "…" not in str(problem.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x", "'x'"),
        (12, "12"),
        ([1, [2]], "[1, [2]]"),
        (10**6000, "a number of 19,932 bits"),
        (None, "None"),
    ],
    ids=abbreviate,
)
def test_small_values_are_shown_whole(value: object, expected: str) -> None:
    assert abbreviate(value) == expected


def test_a_date_and_an_ordinary_configuration_are_read_as_before() -> None:
    text = 'a: 2024-01-02\nb: [1, 2.5, true, null, "x"]\nc: {d: 1e-3, e: 1_000}\n"1": f\n'
    assert parse_yaml(text, what="it") == {
        "a": "2024-01-02",
        "b": [1, 2.5, True, None, "x"],
        "c": {"d": "1e-3", "e": 1000},
        "1": "f",
    }
