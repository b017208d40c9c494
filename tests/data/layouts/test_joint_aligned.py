"""Source and target stand at fixed places: the same pair, and the target always begins where it did."""

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.data.layouts.canvas import Split
from noise2text.data.layouts.joint import Joint
from noise2text.data.layouts.joint_aligned import Fixed
from noise2text.data.layouts.padded_target import Filled
from noise2text.data.layouts.template import Template
from noise2text.data.ragged import Rows

PAD, BOS, SEP, EOS = 0, 1, 2, 3
SOURCES, TARGETS = [[5, 6, 7], [8]], [[9, 10], [11, 12, 13, 14]]
LAYOUT = Fixed(PAD, begin=BOS, separator=SEP, end=EOS, width=11, room=4)


@pytest.mark.parametrize("shape", [(0, 0), (4, 6), (16, 16)])
def test_the_source_is_filled_up_before_the_target_begins(shape: tuple[int, int]) -> None:
    canvas = LAYOUT.canvas(Rows.of(SOURCES), Rows.of(TARGETS), shape=shape)
    assert canvas.tokens.tolist() == [
        [BOS, 5, 6, 7, PAD, SEP, 9, 10, EOS, PAD, PAD],
        [BOS, 8, PAD, PAD, PAD, SEP, 11, 12, 13, 14, EOS],
    ]
    assert canvas.frozen.tolist() == [[True] * LAYOUT.first + [False] * 5] * 2  # the source's padding, too
    assert torch.equal(canvas.scored, ~canvas.frozen)
    assert not canvas.padding.any()


def test_reading_gives_the_targets_back_for_every_candidate() -> None:
    targets = [*TARGETS, []]
    canvas = LAYOUT.canvas(Rows.of([*SOURCES, [5, 5, 5, 5]]), Rows.of(targets))
    assert LAYOUT.read(canvas, canvas.tokens) == targets
    prompt = LAYOUT.prompt(canvas.source, torch.ones(3, 2), width=0)
    assert LAYOUT.read(prompt, canvas.tokens.repeat_interleave(2, 0)) == [
        targets[row // 2] for row in range(6)
    ]


def test_a_pair_fits_if_each_side_does() -> None:
    with pytest.raises(Problem, match="needs 12 positions, but the canvas has 11"):
        LAYOUT.canvas(Rows.of([[5]]), Rows.of([[9] * 5]))
    with pytest.raises(Problem, match="needs 12 positions, but the canvas has 11"):
        LAYOUT.canvas(Rows.of([[5] * 5]), Rows.of([[9]]))  # a target has its place, too


@pytest.mark.parametrize("layout", [LAYOUT, Joint(PAD, begin=BOS, separator=SEP, end=EOS, width=11)])
def test_a_blank_canvas_has_lost_its_source_and_nothing_else(layout: Joint) -> None:
    canvas = layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    blank = layout.blank(canvas)
    gone = (blank.tokens != canvas.tokens).nonzero().tolist()
    assert gone == [[0, 1], [0, 2], [0, 3], [1, 1]]
    assert (blank.tokens[blank.tokens != canvas.tokens] == PAD).all()
    assert torch.equal(blank.frozen, canvas.frozen)
    assert layout.read(blank, blank.tokens) == TARGETS


def test_a_blank_prompt_keeps_a_given_prefix() -> None:
    source = LAYOUT.source(Rows.of(SOURCES))
    prompt = LAYOUT.give(LAYOUT.prompt(source, torch.ones(2, 2), width=0), Template(((9, 10), ()), (None,)))
    blank = LAYOUT.blank(prompt)
    assert (blank.tokens[:, 1:5] == PAD).all()
    assert (blank.tokens[:, 6:8] == torch.tensor([9, 10])).all()
    assert torch.equal(blank.frozen, prompt.frozen)


@pytest.mark.parametrize("layout", [Split(PAD), Filled(PAD, eos=EOS, width=6)])
def test_without_a_source_an_encoder_sees_one_padding_token(layout: Split | Filled) -> None:
    """Not none at all: attention to nothing is not a number."""
    canvas = layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    blank = layout.blank(canvas)
    assert torch.equal(blank.tokens, canvas.tokens)
    assert (blank.source.tokens == PAD).all()
    assert (~blank.source.padding).tolist() == [[True, False, False]] * 2
