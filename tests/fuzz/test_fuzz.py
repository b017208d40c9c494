"""The short version of `make fuzz`: every parser works or raises a short Problem; past faults stay away."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noise2text.core.command_line import parse_assignments
from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem
from noise2text.core.plain_yaml import parse_yaml
from noise2text.data.corpus import Pair, read_pairs, write_pairs
from noise2text.data.layouts.template import parse_template
from noise2text.data.tokenizer import Tokenizer, learn_characters
from noise2text.models.registry import find_recipe

from .fuzz import Figures, attack, mutate, share_cases
from .targets import TARGETS, Target, require_readable

CASES = 10_000
"""Mutations of all targets together; `make fuzz` tries a million."""
FEW = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_input_works_or_is_a_short_problem(name: str) -> None:
    figures, cases = Figures(), share_cases(CASES, list(TARGETS))[name]
    attack(figures, name, seed=0, cases=cases)
    assert figures.cases[name] > cases
    assert not figures.faults, figures.faults[0]


def test_all_cases_are_shared_out() -> None:
    shares = share_cases(CASES, list(TARGETS))
    assert CASES <= sum(shares.values()) < CASES + len(TARGETS)
    assert min(shares.values()) > 30


def test_every_seed_is_well_formed() -> None:
    """So that mutations reach beyond the first check; the readers of corpora report their own problems."""
    figures = Figures()
    for name, target in TARGETS.items():
        figures.add(name, target, target.seeds()[0])
    assert not figures.problems
    assert not figures.faults


def test_a_fault_is_noticed() -> None:
    def fail(data: bytes) -> None:
        if b"x" not in data:
            raise KeyError(data)
        raise Problem("it says why" if len(data) < 5 else " ")

    figures, target = Figures(), Target(fail, lambda: [])
    for data in (b"x", b"xxxxxx", b"y"):
        figures.add("it", target, data)
    assert (figures.cases["it"], figures.problems["it"], len(figures.faults)) == (3, 2, 2)


def test_mutations_differ_and_can_be_repeated() -> None:
    first, second = ([mutate(b'{"a": 1}', random.Random(n)) for n in range(50)] for _ in range(2))
    assert first == second
    assert len(set(first)) > 25


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.none(), inner) | st.tuples(inner)
    ),
    max_leaves=8,
)
CONFIG = find_recipe("difformer").preset("tiny")
SETTINGS = st.sampled_from(
    ["lr", "optim.steps", "heads", "model", "betas", "noise_factor", "tokenizer", "", "."]
)


def assert_works_or_says_why(attempt: Any) -> None:
    try:
        attempt()
    except Problem as problem:
        require_readable(problem)


@FEW
@given(st.dictionaries(SETTINGS | st.text() | st.integers(), values))
def test_any_values_for_settings(overrides: dict[Any, Any]) -> None:
    assert_works_or_says_why(lambda: apply_overrides(CONFIG, overrides, origin="here"))


@FEW
@given(st.lists(st.text() | st.tuples(SETTINGS, st.text()).map("=".join)))
def test_any_assignments(assignments: list[str]) -> None:
    assert_works_or_says_why(lambda: apply_overrides(CONFIG, parse_assignments(assignments), origin="--set"))


@FEW
@given(st.text())
def test_any_yaml(text: str) -> None:
    assert_works_or_says_why(lambda: parse_yaml(text, what="it"))


@FEW
@given(st.text(), st.text(alphabet="_{}0123456789 a"))
def test_any_template(text: str, likely: str) -> None:
    tokenizer = learn_characters(["abc 0123456789_{}"])
    for each in (text, likely):
        assert_works_or_says_why(lambda each=each: parse_template(each, tokenizer))


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: text.strip())


@FEW
@given(st.lists(st.tuples(texts, texts), min_size=1))
def test_json_lines_lose_nothing(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    pairs = [Pair(src, trg) for src, trg in rows]
    write_pairs(tmp_path / "a.jsonl", pairs)
    assert list(read_pairs(str(tmp_path / "a.jsonl"))) == pairs


def test_a_gap_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(Problem, match="a gap of more tokens than any model has"):
        parse_template(f"7 ___{{{'9' * 5000}}}", learn_characters(["7 may"]))


def test_a_parquet_file_whose_text_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"src": ["7 may"], "trg": ["7 may"]})
    pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    path.write_bytes(path.read_bytes().replace(b"7 may", b"7 m\xffy"))
    with pytest.raises(Problem, match="cannot be read as Parquet"):
        list(read_pairs(str(path)))


def test_a_tokenizer_whose_unknown_token_is_missing_is_refused() -> None:
    """It was loaded, and failed at the first character that the vocabulary lacks."""
    text = learn_characters(["7 may"]).to_json().replace('"unk_token": "[UNK]"', '"unk_token": "[K]"')
    with pytest.raises(Problem, match="Unk token"):
        Tokenizer.from_json(text.encode(), Path("tokenizer.json"))


@pytest.mark.parametrize("fields", [["1" * 5000, "2"], ["²", "1"]], ids=["too long", "no figure"])
def test_numbers_of_columns_that_are_none_are_refused(tmp_path: Path, fields: list[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("de,en\na,b\n")
    with pytest.raises(Problem, match="column"):
        list(read_pairs(f"{path}[{','.join(fields)}]"))


def test_a_number_of_thousands_of_digits_is_preprocessed() -> None:
    """It was a ValueError: Python reads at most 4,300 digits as a number."""
    TARGETS["text to preprocess"].run(b"Wir haben 12 " + b"9" * 5000 + b" Euro")


@pytest.mark.parametrize("text", ["a, b c d\x0b, e f g h i j k l m", "a b c,\u3000 , d e f g h i j k l m n"])
def test_a_clause_of_marks_and_odd_spaces_alone_is_preprocessed(text: str) -> None:
    """An empty clause was an IndexError."""
    TARGETS["text to preprocess"].run(text.encode())


@pytest.mark.parametrize("piece", ["a", "1", "1.", '"', ".", "z. B. ", "wort, "])
def test_the_time_to_preprocess_a_long_text_is_not_quadratic(piece: str) -> None:
    """Each took 10 to 40 seconds of the processor; now it takes one at most."""
    figures = Figures()
    figures.add("it", TARGETS["text to preprocess"], (piece * (100_000 // len(piece))).encode(), seconds=5)
    assert not figures.faults, figures.faults[0][2]
