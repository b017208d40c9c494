"""A target ends with [EOS], which is scored; the padding after it is not."""

import torch

from noise2text.data.layouts.split_with_end import SplitWithEndLayout
from noise2text.data.ragged import RaggedRows

PAD, EOS = 0, 3
LAYOUT = SplitWithEndLayout(PAD, eos=EOS)
SOURCES, TARGETS = [[5, 6, 7], [8], [9]], [[9, 10], [11, 12, 13], []]


def test_the_end_follows_the_target_and_is_scored() -> None:
    canvas = LAYOUT.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS), shape=(4, 4))
    assert canvas.tokens.tolist() == [
        [9, 10, EOS, PAD, PAD],
        [11, 12, 13, EOS, PAD],
        [EOS, PAD, PAD, PAD, PAD],
    ]
    assert canvas.scored.sum(1).tolist() == [3, 4, 1]
    assert torch.equal(canvas.scored, ~canvas.padding)
    assert not canvas.given.any()
    assert canvas.source.tokens.shape == (3, 4)


def test_reading_gives_the_targets_back() -> None:
    canvas = LAYOUT.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    assert LAYOUT.extract_targets(canvas, canvas.tokens) == TARGETS
    assert LAYOUT.extract_targets(canvas, torch.tensor([[7, EOS, 8], [7, 8, 9], [EOS, EOS, 1]])) == [
        [7],
        [7, 8, 9],
        [],
    ]
