"""Source and target share one full canvas: the source is given, the rest is scored and read back."""

import numpy as np
import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.data.layouts.joint import InfillingLayout, JointLayout
from noise2text.data.ragged import RaggedRows

PAD, BOS, SEP, EOS = 0, 1, 2, 3
SOURCES, TARGETS = [[5, 6, 7], [8]], [[9, 10], [11, 12, 13, 14]]
LAYOUT = JointLayout(PAD, bos=BOS, sep=SEP, eos=EOS, width=10)


def test_a_canvas_is_begin_source_separator_target_end_padding() -> None:
    canvas = LAYOUT.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    assert canvas.tokens.tolist() == [
        [BOS, 5, 6, 7, SEP, 9, 10, EOS, PAD, PAD],
        [BOS, 8, SEP, 11, 12, 13, 14, EOS, PAD, PAD],
    ]
    assert canvas.given.sum(1).tolist() == [5, 3]
    assert torch.equal(canvas.scored, ~canvas.given)
    assert not canvas.padding.any()
    assert canvas.source.tokens.tolist() == [[5, 6, 7], [8, 0, 0]]


@pytest.mark.parametrize("shape", [(0, 0), (4, 6), (16, 16)])
def test_the_canvas_is_the_same_whatever_the_batch_is_padded_to(shape: tuple[int, int]) -> None:
    plain = LAYOUT.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    shaped = LAYOUT.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS), shape=shape)
    assert torch.equal(shaped.tokens, plain.tokens)
    assert torch.equal(shaped.given, plain.given)


@pytest.mark.parametrize("layout", [LAYOUT, InfillingLayout(PAD, bos=BOS, sep=SEP, eos=EOS, width=10)])
def test_reading_gives_the_targets_back(layout: JointLayout) -> None:
    targets = [*TARGETS, [], [9] * 8]
    sources = [*SOURCES, [5, 6, 7, 8], []]
    wide = JointLayout(PAD, bos=BOS, sep=SEP, eos=EOS, width=11)
    canvas = wide.make_canvas(RaggedRows.from_lists(sources), RaggedRows.from_lists(targets))
    assert layout.extract_targets(canvas, canvas.tokens) == targets


def test_a_pair_that_fills_the_canvas_fits_and_a_longer_one_is_refused() -> None:
    layout = JointLayout(PAD, bos=BOS, sep=SEP, eos=EOS, width=7)
    canvas = layout.make_canvas(RaggedRows.from_lists([[5, 6]]), RaggedRows.from_lists([[7, 8]]))
    assert canvas.tokens.tolist() == [[BOS, 5, 6, SEP, 7, 8, EOS]]
    with pytest.raises(Problem, match="needs 8 positions, but the canvas has 7"):
        layout.make_canvas(RaggedRows.from_lists([[5, 6]]), RaggedRows.from_lists([[7, 8, 9]]))


def test_a_prompt_is_the_given_part_repeated_for_each_candidate() -> None:
    canvas = LAYOUT.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    prompt = LAYOUT.make_empty_canvas(canvas.source, torch.full((2, 3), 6), width=6)
    assert prompt.tokens.shape == (6, 10)
    for row in range(6):
        given = canvas.given[row // 3]
        assert torch.equal(prompt.given[row], given)
        assert torch.equal(prompt.tokens[row, given], canvas.tokens[row // 3, given])
        assert (prompt.tokens[row, ~given] == PAD).all()
    written = canvas.tokens.repeat_interleave(3, 0)
    assert LAYOUT.extract_targets(prompt, written) == [TARGETS[row // 3] for row in range(6)]


def test_a_target_ends_at_the_first_end_or_padding_or_with_the_canvas() -> None:
    prompt = LAYOUT.make_empty_canvas(
        LAYOUT.make_source(RaggedRows.from_lists([[5, 6]])), torch.ones(1, 3), width=0
    )
    tails = torch.tensor([[9, 9, EOS, 9, 9, 9], [9, PAD, 9, EOS, 9, 9], [9] * 6])
    tokens = torch.cat([prompt.tokens[:, :4], tails], 1)
    assert LAYOUT.extract_targets(prompt, tokens) == [[9, 9], [9], [9] * 6]


def test_infilling_learns_the_whole_canvas_and_is_given_the_source_later() -> None:
    layout = InfillingLayout(PAD, bos=BOS, sep=SEP, eos=EOS, width=10)
    canvas = layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    assert torch.equal(
        canvas.tokens,
        LAYOUT.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS)).tokens,
    )
    assert not canvas.given.any()
    assert canvas.scored.all()
    assert layout.make_empty_canvas(canvas.source, torch.ones(2, 1), width=0).given.sum(1).tolist() == [5, 3]
    (filled,) = layout.generation_rounds(canvas)
    plain = LAYOUT.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    assert torch.equal(filled.given, plain.given)
    assert torch.equal(filled.scored, plain.scored)
    assert torch.equal(filled.tokens, plain.tokens)


def test_batches_have_one_shape_and_so_one_number_of_rows() -> None:
    lengths = np.array([[3, 9], [30, 2], [8, 8]])
    layout = JointLayout(0, bos=2, sep=4, eos=3, width=50)
    assert layout.batch_shapes(lengths) == [(30, 9)]
