"""Lengths: the paper's top-b₁, the released neighbours, and a loss on the right offset."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from noise2text.data.layouts.canvas import Split
from noise2text.data.ragged import Rows
from noise2text.diffusion.losses import LengthNll, Trace
from noise2text.nn.denoiser import Estimate, Memory
from noise2text.nn.length_predictor import Lengths, around, top


def memory_of(lengths: list[int], width: int = 4) -> Memory:
    padding = torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]
    torch.manual_seed(0)
    return Memory(torch.randn(len(lengths), max(lengths), width), padding, torch.empty(0), torch.empty(0))


def fixed(scores: torch.Tensor, *, longest: int) -> Lengths:
    """A predictor that gives every sentence these scores, of the offsets around 0."""
    lengths = Lengths(4, longest=longest, reach=(len(scores) - 1) // 2)
    more = lengths.reach - (len(scores) - 1) // 2
    scores = torch.nn.functional.pad(scores, (more, more), value=-9.0)
    lengths.log_probabilities = lambda memory: scores.log_softmax(-1).expand(len(memory.padding), -1)  # type: ignore[method-assign]
    return lengths


def test_top_takes_the_likeliest_lengths() -> None:
    predictor = fixed(torch.tensor([0.0, 5.0, 1.0, 4.0, 2.0]), longest=20)
    lengths, scores = predictor.propose(memory_of([7, 3]), 3, top)
    assert lengths.tolist() == [[6, 8, 9], [2, 4, 5]]
    assert (scores[:, :-1] >= scores[:, 1:]).all()


def test_around_takes_the_likeliest_and_its_neighbours() -> None:
    predictor = fixed(torch.tensor([0.0, 1.0, 5.0, 1.0, 2.0]), longest=20)
    assert predictor.propose(memory_of([7]), 3, around)[0].tolist() == [[6, 7, 8]]


def test_around_stays_within_what_is_possible_and_takes_nothing_twice() -> None:
    predictor = fixed(torch.tensor([0.0, 0.0, 5.0, 0.0, 0.0]), longest=8)
    lengths, scores = predictor.propose(memory_of([1, 4, 8, 7]), 5, around)
    assert lengths.tolist() == [[1, 2, 3, 4, 5], [2, 3, 4, 5, 6], [4, 5, 6, 7, 8], [4, 5, 6, 7, 8]]
    assert scores.isfinite().all()


def test_no_length_is_below_one_or_beyond_the_longest() -> None:
    predictor = fixed(torch.tensor([9.0, 8.0, 1.0, 7.0, 6.0]), longest=3)
    for choose in (top, around):
        lengths, _ = predictor.propose(memory_of([2, 1, 3]), 4, choose)
        assert lengths.min() >= 1
        assert lengths.max() <= 3
    assert predictor.propose(memory_of([2]), 1, top)[0].tolist() == [[1]]


def test_every_length_can_be_proposed_for_the_longest_source() -> None:
    torch.manual_seed(1)
    lengths, scores = Lengths(4, longest=5, source=400).propose(memory_of([400, 2]), 5, top)
    assert lengths.sort(1).values.tolist() == [[1, 2, 3, 4, 5]] * 2
    assert scores.isfinite().all()


@pytest.mark.parametrize("choose", [top, around])
def test_every_length_can_be_proposed_for_the_shortest_source(choose: Any) -> None:
    lengths, scores = Lengths(4, longest=300).propose(memory_of([5, 1]), 300, choose)
    assert lengths.sort(1).values.tolist() == [list(range(1, 301))] * 2
    assert scores.isfinite().all()


def test_padding_does_not_change_the_lengths() -> None:
    torch.manual_seed(1)
    predictor = Lengths(4, longest=50)
    whole = memory_of([5, 2])
    alone = Memory(whole.states[1:, :2], whole.padding[1:, :2], whole.keys, whole.values)
    together = predictor.log_probabilities(whole)[1]
    assert torch.allclose(predictor.log_probabilities(alone)[0], together, atol=1e-6)


def test_the_loss_is_the_surprise_at_the_right_offset_clipped_to_the_reach() -> None:
    predictor = Lengths(4, longest=2, reach=2)
    canvas = Split(0).canvas(Rows.of([[1, 1, 1], [1]]), Rows.of([[1, 1], [1] * 9]))
    memory = Memory(torch.randn(2, 3, 4), canvas.source.padding, torch.empty(0), torch.empty(0))
    nothing = torch.empty(0)
    trace = Trace(canvas, nothing, nothing, Estimate(nothing, nothing), memory, None, None)  # type: ignore[arg-type]
    term = LengthNll(predictor)
    expected = -predictor.log_probabilities(memory)[[0, 1], [1, 4]]  # offsets −1 and 8, clipped to 2
    assert torch.allclose(term.value(trace)[:, 0], expected)
    assert term.mask(canvas).tolist() == [[True], [True]]


def test_a_beam_wider_than_the_longest_length_tries_each_length_once() -> None:
    predictor = Lengths(4, longest=3, reach=16)
    lengths, scores = predictor.propose(memory_of([2, 5]), 7, top)
    assert [sorted(row) for row in lengths.tolist()] == [[1, 2, 3], [1, 2, 3]]
    assert scores.isfinite().all()
