"""A template's pieces are where it says, and its gaps get the rest."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from noise2text.core.errors import Problem
from noise2text.data.layouts.template import OPEN_TEMPLATE, Template, parse_template
from noise2text.data.tokenizer import Tokenizer, learn_bpe


@pytest.mark.parametrize(
    ("text", "pieces", "gaps"),
    [
        ("___", ["", ""], (None,)),
        ("19___", ["19", ""], (None,)),
        ("___-07", ["", "-07"], (None,)),
        ("19___-___{2}-07", ["19", "-", "-07"], (None, 2)),
        ("a ______ b", ["a ", " b"], (None,)),
        ("___{12}___", ["", "", ""], (12, None)),
        ("a_b__", ["a_b__"], ()),
    ],
)
def test_underscores_are_gaps(text: str, pieces: list[str], gaps: tuple[int | None, ...]) -> None:
    from noise2text.data.tokenizer import learn_characters

    tokenizer = learn_characters(["ab_ -0123456789"])
    parsed = parse_template(text, tokenizer)
    assert tokenizer.decode(parsed.pieces) == pieces
    assert parsed.gaps == gaps


def test_the_space_before_a_gap_belongs_to_it_where_words_bring_their_space() -> None:
    tokenizer = learn_bpe(["the house is green, the house is red"] * 2, size=280)
    parsed = parse_template("the house ___ green", tokenizer)
    assert tokenizer.decode(parsed.pieces) == ["the house", " green"]
    assert parsed.pieces == tuple(map(tuple, tokenizer.encode(["the house", " green"])))


def test_a_gap_of_nothing_and_an_unknown_character_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(Problem, match="gap of no tokens"):
        parse_template("19___{0}", tokenizer)
    with pytest.raises(Problem, match="'%' has a character"):
        parse_template("19___%", tokenizer)


TEMPLATES = st.lists(st.integers(0, 3), min_size=2, max_size=6).flatmap(
    lambda sizes: st.builds(
        lambda gaps: Template(tuple((7,) * size for size in sizes), tuple(gaps)),
        st.lists(st.one_of(st.none(), st.integers(1, 4)), min_size=len(sizes) - 1, max_size=len(sizes) - 1),
    )
)


def test_too_short_lengths_become_different_ones_that_fit() -> None:
    """Else a prefix that is longer than what was expected would get the same candidate many times."""
    prefix = Template(((7,) * 8, ()), (None,))
    wished = torch.tensor([[5, 6, 12, 4, 9], [20, 21, 19, 22, 18]])
    assert prefix.fit_lengths(wished, 30).tolist() == [[9, 10, 12, 11, 9], [20, 21, 19, 22, 18]]
    assert prefix.fit_lengths(wished, 10).tolist()[0] == [9, 10, 12, 10, 9]  # what was possible before stays
    exact = Template(((7,), (8,)), (3,))
    assert exact.fit_lengths(wished, 30).tolist() == [[5] * 5] * 2


@given(TEMPLATES, st.integers(0, 40))
def test_pieces_and_gaps_fill_the_length_exactly(template: Template, length: int) -> None:
    ((fitted,),) = template.fit_lengths(torch.tensor([[length]]), 60).tolist()
    assert fitted >= template.min_length
    assert fitted == max(length, template.min_length) or template.is_exact
    assert not template.is_exact or fitted == template.min_length
    check_device = [
        (len(piece), int(start)) for piece, start in template.locate_pieces(torch.tensor([fitted]))
    ]
    ends = [start + size for size, start in check_device]
    widths = [start - end for end, (_, start) in zip(ends, check_device[1:], strict=False)]
    assert check_device[0][1] == 0
    assert ends[-1] == fitted
    assert all(wide == gap for wide, gap in zip(widths, template.gaps, strict=True) if gap is not None)
    opened = [wide for wide, gap in zip(widths, template.gaps, strict=True) if gap is None]
    assert all(wide >= 1 for wide in opened)
    assert not opened or max(opened) - min(opened) <= 1
    assert opened == sorted(opened, reverse=True)


def test_only_a_last_open_gap_leaves_all_positions_known() -> None:
    assert OPEN_TEMPLATE.has_fixed_positions
    assert Template(((1,), (2,)), (3,)).has_fixed_positions
    assert Template(((1,), (2,), ()), (3, None)).has_fixed_positions
    assert not Template(((1,), (2,)), (None,)).has_fixed_positions
    assert not Template(((), (2,), ()), (None, None)).has_fixed_positions


def test_one_template_can_follow_another() -> None:
    joined = Template(((1,), (2,)), (3,)).concatenate(9, Template(((4,), ()), (None,)))
    assert joined == Template(((1,), (2, 9, 4), ()), (3, None))
    assert Template(((1,),), ()).concatenate(9, OPEN_TEMPLATE) == Template(((1, 9), ()), (None,))
