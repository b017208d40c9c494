"""A canvas shows the networks everything but padding, and is read back as it was laid out."""

import torch

from noise2text.data.layouts.canvas import Split
from noise2text.data.ragged import Rows

SOURCES, TARGETS = [[5, 6, 7], [8]], [[9, 10], [11, 12, 13, 14]]


def test_a_canvas_holds_the_targets_and_scores_what_is_not_padding() -> None:
    canvas = Split(pad=0).canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    assert canvas.tokens.tolist() == [[9, 10, 0, 0], [11, 12, 13, 14]]
    assert canvas.padding.tolist() == [[False, False, True, True], [False] * 4]
    assert torch.equal(canvas.scored, ~canvas.padding)
    assert not canvas.frozen.any()
    assert canvas.source.tokens.tolist() == [[5, 6, 7], [8, 0, 0]]


def test_reading_gives_the_targets_back() -> None:
    layout = Split(pad=0)
    canvas = layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS), shape=(8, 8))
    assert canvas.tokens.shape == canvas.source.tokens.shape == (2, 8)
    assert layout.read(canvas, canvas.tokens) == TARGETS


def test_a_prompt_has_a_row_a_candidate_of_the_wished_length() -> None:
    layout = Split(pad=0)
    lengths = torch.tensor([[1, 3], [2, 2]])
    prompt = layout.prompt(layout.source(Rows.of(SOURCES)), lengths, width=3)
    assert (~prompt.padding).sum(1).tolist() == [1, 3, 2, 2]
    assert [len(row) for row in layout.read(prompt, prompt.tokens)] == [1, 3, 2, 2]
