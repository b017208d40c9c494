"""The automatic split: no source on both sides, the seed decides, the order does not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair
from noise2text.data.validation_split import MAX_PAIRS, SHARE, choose_split

MANY = [Pair(f"source {number}", "target") for number in range(2000)]


def split_off(pairs: list[Pair], seed: int = 0) -> tuple[list[Pair], list[Pair]]:
    split = choose_split(lambda: pairs, seed=seed)
    valid = [pair for pair in pairs if split.is_validation(pair)]
    assert (split.num_pairs, split.num_validation) == (len(pairs), len(valid))
    return [pair for pair in pairs if not split.is_validation(pair)], valid


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text("aAb ", min_size=1), min_size=2), st.integers(0, 9))
def test_no_source_is_on_both_sides_and_neither_is_empty(sources: list[str], seed: int) -> None:
    pairs = [Pair(source, str(number)) for number, source in enumerate(sources)]
    normalized = {" ".join(source.casefold().split()) for source in sources}
    if len(normalized) < 2:
        with pytest.raises(Problem, match="two different sources"):
            split_off(pairs, seed)
        return
    sides = split_off(pairs, seed)
    assert all(sides)
    train, valid = ({" ".join(pair.src.casefold().split()) for pair in side} for side in sides)
    assert train.isdisjoint(valid)


def test_a_share_of_the_pairs_is_set_aside() -> None:
    assert len(split_off(MANY)[1]) == SHARE * len(MANY)
    assert len(split_off([Pair(f"{i}", "x") for i in range(30_000)])[1]) == MAX_PAIRS


def test_the_seed_decides_and_the_order_does_not() -> None:
    assert set(split_off(MANY)[1]) == set(split_off(MANY[::-1])[1])
    assert set(split_off(MANY, seed=1)[1]) != set(split_off(MANY, seed=2)[1])


def test_the_split_says_what_it_did() -> None:
    said = choose_split(lambda: MANY, seed=7).describe()
    assert "100 of 2,000 pairs" in said
    assert "seed 7" in said
