"""Settings come from flags and files, and every mistake names its field."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from noise2text.core.config import (
    apply_overrides,
    describe,
    option,
    parse_assignments,
    parse_options,
    read_config,
    require_at_least,
    require_divisible_heads,
)
from noise2text.core.errors import Problem


@dataclass(frozen=True)
class Example:
    steps: int = option(5, "how many")
    rate: float = option(0.1, "how fast")
    fast: bool = option(False, "whether")
    name: str = option("a", "who")
    betas: tuple[float, float] = option((0.9, 0.98), "both")
    factor: float | None = option(None, "maybe")


@pytest.mark.parametrize(
    ("field", "given", "expected"),
    [
        ("steps", "7", 7),
        ("steps", 7, 7),
        ("steps", "1e4", 10_000),
        ("steps", "20_000", 20_000),
        ("steps", "9007199254740993", 2**53 + 1),
        ("steps", 2**53 + 1, 2**53 + 1),
        ("rate", "5e-4", 5e-4),
        ("rate", 1, 1.0),
        ("fast", "true", True),
        ("fast", False, False),
        ("name", "b", "b"),
        ("betas", "0.5,0.6", (0.5, 0.6)),
        ("betas", [0.5, 0.6], (0.5, 0.6)),
        ("factor", "none", None),
        ("factor", None, None),
        ("factor", "4", 4.0),
    ],
)
def test_values_become_their_fields_type(field: str, given: object, expected: object) -> None:
    changed = getattr(apply_overrides(Example(), {field: given}, origin="test"), field)
    assert changed == expected
    assert type(changed) is type(expected)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"stepps": 1}, "did you mean steps"),
        ({"zzz": 1}, "there is no setting 'zzz'"),
        ({"steps": "many"}, "steps takes a whole number, not 'many'"),
        ({"steps": 1.5}, "steps takes a whole number"),
        ({"steps": True}, "steps takes a whole number"),
        ({"rate": "x"}, "rate takes a number"),
        ({"fast": "maybe"}, "fast takes true or false"),
        ({"name": 3}, "name takes text"),
        ({"betas": "0.5"}, "betas takes 2 values"),
        ({"betas": 0.5}, "betas takes 2 values"),
        ({"rate": None}, "rate takes a number"),
    ],
)
def test_mistakes_name_the_field_and_the_place(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(Problem, match=message) as problem:
        apply_overrides(Example(), overrides, origin="test")
    assert str(problem.value).startswith("test: ")


def test_assignments() -> None:
    assert parse_assignments(["a=1", "b = x=y"]) == {"a": "1", "b": "x=y"}
    assert parse_assignments(None) == {}
    with pytest.raises(Problem, match="key=value"):
        parse_assignments(["a"])


def test_a_config_is_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("steps: 3\nbetas: [0.1, 0.2]\n")
    assert read_config(path) == {"steps": 3, "betas": [0.1, 0.2]}
    path.write_text("")
    assert read_config(path) == {}
    for bad in ("- a\n", "a: [\n", "\t"):
        path.write_text(bad)
        with pytest.raises(Problem, match=r"c\.yaml"):
            read_config(path)
    with pytest.raises(Problem, match=r"missing\.yaml"):
        read_config(tmp_path / "missing.yaml")


def test_every_field_says_what_it_is() -> None:
    assert [row[0] for row in describe(Example())] == ["steps", "rate", "fast", "name", "betas", "factor"]
    assert all(line for _, _, line in describe(Example()))


def test_what_is_not_a_number_is_refused() -> None:
    for value in ("inf", "nan"):
        with pytest.raises(Problem, match="steps takes a whole number"):
            apply_overrides(Example(), {"steps": value}, origin="here")
    with pytest.raises(Problem, match="rate must be at least 0, not nan"):
        require_at_least(Example(rate=float("nan")), 0, "rate")


def test_options_become_settings_and_a_lone_one_is_named() -> None:
    assert parse_options(["--length-beam", "3", "--prefix=--x", "--eta", "-1"]) == {
        "length_beam": "3",
        "prefix": "--x",
        "eta": "-1",
    }
    with pytest.raises(Problem, match="--steps needs a value"):
        parse_options(["--steps"])
    with pytest.raises(Problem, match="--steps needs a value"):
        parse_options(["--steps", "--eta", "1"])
    with pytest.raises(Problem, match="nothing to do with 'five'"):
        parse_options(["five"])


@pytest.mark.parametrize(
    ("name", "value"), [("rate", "nan"), ("rate", "inf"), ("rate", float("-inf")), ("steps", "1e20")]
)
def test_what_no_tensor_can_hold_is_no_number(name: str, value: object) -> None:
    with pytest.raises(Problem, match=f"the setting {name} takes a"):
        apply_overrides(Example(), {name: value}, origin="here")


@dataclass(frozen=True)
class Shape:
    model_dim: int
    heads: int


@pytest.mark.parametrize("shape", [Shape(0, 4), Shape(-4, 4), Shape(8, 0), Shape(8, -2)])
def test_width_and_heads_are_positive(shape: Shape) -> None:
    with pytest.raises(Problem, match="at least 1"):
        require_divisible_heads(shape)
