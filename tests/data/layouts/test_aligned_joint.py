"""Source and target are at fixed positions: the target always begins at the same one."""

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.data.layouts.aligned_joint import AlignedJointLayout
from noise2text.data.layouts.joint import JointLayout
from noise2text.data.layouts.padded_target import PaddedTargetLayout
from noise2text.data.layouts.split import SplitLayout
from noise2text.data.layouts.template import Template
from noise2text.data.ragged import RaggedRows

PAD, BOS, SEP, EOS = 0, 1, 2, 3
SOURCES, TARGETS = [[5, 6, 7], [8]], [[9, 10], [11, 12, 13, 14]]
LAYOUT = AlignedJointLayout(PAD, bos=BOS, sep=SEP, eos=EOS, width=11, max_source=4)


@pytest.mark.parametrize("shape", [(0, 0), (4, 6), (16, 16)])
def test_the_source_is_filled_up_before_the_target_begins(shape: tuple[int, int]) -> None:
    canvas = LAYOUT.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS), shape=shape)
    assert canvas.tokens.tolist() == [
        [BOS, 5, 6, 7, PAD, SEP, 9, 10, EOS, PAD, PAD],
        [BOS, 8, PAD, PAD, PAD, SEP, 11, 12, 13, 14, EOS],
    ]
    assert (
        canvas.given.tolist() == [[True] * LAYOUT.target_start + [False] * 5] * 2
    )  # the source's padding, too
    assert torch.equal(canvas.scored, ~canvas.given)
    assert not canvas.padding.any()


def test_reading_gives_the_targets_back_for_every_candidate() -> None:
    targets = [*TARGETS, []]
    canvas = LAYOUT.make_canvas(
        RaggedRows.from_lists([*SOURCES, [5, 5, 5, 5]]), RaggedRows.from_lists(targets)
    )
    assert LAYOUT.extract_targets(canvas, canvas.tokens) == targets
    prompt = LAYOUT.make_empty_canvas(canvas.source, torch.ones(3, 2), width=0)
    assert LAYOUT.extract_targets(prompt, canvas.tokens.repeat_interleave(2, 0)) == [
        targets[row // 2] for row in range(6)
    ]


def test_a_pair_fits_if_each_side_does() -> None:
    with pytest.raises(Problem, match="needs 12 positions, but the canvas has 11"):
        LAYOUT.make_canvas(RaggedRows.from_lists([[5]]), RaggedRows.from_lists([[9] * 5]))
    with pytest.raises(Problem, match="needs 12 positions, but the canvas has 11"):
        LAYOUT.make_canvas(
            RaggedRows.from_lists([[5] * 5]), RaggedRows.from_lists([[9]])
        )  # a target has its place, too


@pytest.mark.parametrize("layout", [LAYOUT, JointLayout(PAD, bos=BOS, sep=SEP, eos=EOS, width=11)])
def test_a_blank_canvas_has_lost_its_source_and_nothing_else(layout: JointLayout) -> None:
    canvas = layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    without_source = layout.without_source(canvas)
    gone = (without_source.tokens != canvas.tokens).nonzero().tolist()
    assert gone == [[0, 1], [0, 2], [0, 3], [1, 1]]
    assert (without_source.tokens[without_source.tokens != canvas.tokens] == PAD).all()
    assert torch.equal(without_source.given, canvas.given)
    assert layout.extract_targets(without_source, without_source.tokens) == TARGETS


def test_a_blank_prompt_keeps_a_given_prefix() -> None:
    source = LAYOUT.make_source(RaggedRows.from_lists(SOURCES))
    prompt = LAYOUT.apply_template(
        LAYOUT.make_empty_canvas(source, torch.ones(2, 2), width=0), Template(((9, 10), ()), (None,))
    )
    without_source = LAYOUT.without_source(prompt)
    assert (without_source.tokens[:, 1:5] == PAD).all()
    assert (without_source.tokens[:, 6:8] == torch.tensor([9, 10])).all()
    assert torch.equal(without_source.given, prompt.given)


@pytest.mark.parametrize("layout", [SplitLayout(PAD), PaddedTargetLayout(PAD, eos=EOS, width=6)])
def test_without_a_source_an_encoder_sees_one_padding_token(layout: SplitLayout | PaddedTargetLayout) -> None:
    """Not none at all: attention to nothing is not a number."""
    canvas = layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    without_source = layout.without_source(canvas)
    assert torch.equal(without_source.tokens, canvas.tokens)
    assert (without_source.source.tokens == PAD).all()
    assert (~without_source.source.padding).tolist() == [[True, False, False]] * 2
