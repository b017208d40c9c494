"""A canvas shows the networks everything but padding, and gives its targets back."""

import torch

from noise2text.data.layouts.split import SplitLayout
from noise2text.data.ragged import RaggedRows

SOURCES, TARGETS = [[5, 6, 7], [8]], [[9, 10], [11, 12, 13, 14]]


def test_a_canvas_holds_the_targets_and_scores_what_is_not_padding() -> None:
    canvas = SplitLayout(pad=0).make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    assert canvas.tokens.tolist() == [[9, 10, 0, 0], [11, 12, 13, 14]]
    assert canvas.padding.tolist() == [[False, False, True, True], [False] * 4]
    assert torch.equal(canvas.scored, ~canvas.padding)
    assert not canvas.given.any()
    assert canvas.source.tokens.tolist() == [[5, 6, 7], [8, 0, 0]]


def test_reading_gives_the_targets_back() -> None:
    layout = SplitLayout(pad=0)
    canvas = layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS), shape=(8, 8))
    assert canvas.tokens.shape == canvas.source.tokens.shape == (2, 8)
    assert layout.extract_targets(canvas, canvas.tokens) == TARGETS


def test_a_prompt_has_one_row_per_candidate_of_the_requested_length() -> None:
    layout = SplitLayout(pad=0)
    lengths = torch.tensor([[1, 3], [2, 2]])
    prompt = layout.make_empty_canvas(layout.make_source(RaggedRows.from_lists(SOURCES)), lengths, width=3)
    assert (~prompt.padding).sum(1).tolist() == [1, 3, 2, 2]
    assert [len(row) for row in layout.extract_targets(prompt, prompt.tokens)] == [1, 3, 2, 2]
