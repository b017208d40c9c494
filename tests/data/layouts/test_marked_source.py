"""A source is between special tokens; everything else is as in the split layout with an end."""

import torch

from noise2text.data.layouts.marked_source import MarkedSourceLayout
from noise2text.data.layouts.split_with_end import SplitWithEndLayout
from noise2text.data.ragged import RaggedRows

PAD, EOS = 0, 3
SOURCES, TARGETS = [[5, 6, 7], [8]], [[9, 10], [11, 12, 13]]


def test_a_source_stands_between_its_frame_and_padding_follows() -> None:
    source = MarkedSourceLayout(PAD, EOS, (1,), (2, 4)).make_source(RaggedRows.from_lists(SOURCES), width=4)
    assert source.tokens.tolist() == [[1, 5, 6, 7, 2, 4, PAD], [1, 8, 2, 4, PAD, PAD, PAD]]
    assert source.padding.sum(1).tolist() == [1, 3]
    assert torch.equal(source.padding, source.tokens == PAD)


def test_without_a_frame_it_is_ended() -> None:
    bare, ended = MarkedSourceLayout(PAD, EOS, (), ()), SplitWithEndLayout(PAD, EOS)
    for shape in ((0, 0), (5, 6)):
        ours, theirs = (
            each.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS), shape=shape)
            for each in (bare, ended)
        )
        assert torch.equal(ours.source.tokens, theirs.source.tokens)
        assert torch.equal(ours.source.padding, theirs.source.padding)
        assert torch.equal(ours.tokens, theirs.tokens)
