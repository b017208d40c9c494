"""A padded canvas always has the same width and gives its targets back up to their end."""

import numpy as np
import torch

from noise2text.data.layouts.padded_target import PaddedTargetLayout
from noise2text.data.ragged import RaggedRows

PAD, EOS = 0, 3
LAYOUT = PaddedTargetLayout(PAD, eos=EOS, width=5)
SOURCES, TARGETS = [[5, 6, 7], [8]], [[9, 10], [11, 12, 13, 14]]


def test_the_end_and_what_follows_are_written_seen_and_scored() -> None:
    canvas = LAYOUT.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS), shape=(4, 9))
    assert canvas.tokens.tolist() == [[9, 10, EOS, PAD, PAD], [11, 12, 13, 14, EOS]]
    assert canvas.scored.all()
    assert not canvas.padding.any()
    assert not canvas.given.any()
    assert canvas.source.padding.tolist() == [[False, False, False, True], [False, True, True, True]]


def test_a_long_target_is_cut_so_that_its_end_fits() -> None:
    canvas = LAYOUT.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists([[9] * 5, [11] * 8]))
    assert canvas.tokens.tolist() == [[9, 9, 9, 9, EOS], [11, 11, 11, 11, EOS]]


def test_reading_gives_the_targets_back() -> None:
    canvas = LAYOUT.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    assert LAYOUT.extract_targets(canvas, canvas.tokens) == TARGETS


def test_reading_stops_at_the_first_end_or_filling_if_there_is_one() -> None:
    written = [[7, EOS, 8, EOS, PAD], [7, 8, PAD, 9, EOS], [7, 8, 9, 7, 8], [EOS, 7, 8, 9, 9]]
    tokens = torch.tensor(written)
    canvas = LAYOUT.make_empty_canvas(
        LAYOUT.make_source(RaggedRows.from_lists(SOURCES)), torch.ones(2, 2, dtype=torch.long), width=5
    )
    assert LAYOUT.extract_targets(canvas, tokens) == [[7], [7, 8], [7, 8, 9, 7, 8], []]


def test_what_is_spoken_is_the_target_and_its_end() -> None:
    canvas = LAYOUT.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    assert LAYOUT.non_padding_mask(canvas).tolist() == [[True, True, True, False, False], [True] * 5]


def test_a_prompt_is_a_whole_canvas_a_candidate() -> None:
    prompt = LAYOUT.make_empty_canvas(
        LAYOUT.make_source(RaggedRows.from_lists(SOURCES)), torch.full((2, 3), 5), width=5
    )
    assert prompt.tokens.shape == (6, 5)
    assert prompt.scored.all()
    assert not (prompt.padding | prompt.given).any()


def test_sources_come_in_several_widths_and_targets_in_one() -> None:
    lengths = np.array([[3, 9], [30, 2], [8, 8], [12, 3]])
    shapes = PaddedTargetLayout(0, eos=3, width=10).batch_shapes(lengths)
    assert len(shapes) > 1
    assert {target for _, target in shapes} == {10}
