"""Lengths: the paper's top-b₁, the released neighbours, and a loss on the right offset."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from noise2text.data.layouts.split import SplitLayout
from noise2text.data.ragged import RaggedRows
from noise2text.diffusion.losses import LengthLoss, LossInputs
from noise2text.nn.denoiser import EncoderOutput, Estimate
from noise2text.nn.length_predictor import LengthPredictor, neighboring_lengths, top_lengths


def encoder_output(lengths: list[int], width: int = 4) -> EncoderOutput:
    padding = torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]
    torch.manual_seed(0)
    return EncoderOutput(
        torch.randn(len(lengths), max(lengths), width), padding, torch.empty(0), torch.empty(0)
    )


def constant_predictor(scores: torch.Tensor, *, max_length: int) -> LengthPredictor:
    """A predictor that gives every sentence these scores, of the offsets around 0."""
    lengths = LengthPredictor(4, max_length=max_length, max_offset=(len(scores) - 1) // 2)
    more = lengths.max_offset - (len(scores) - 1) // 2
    scores = torch.nn.functional.pad(scores, (more, more), value=-9.0)
    lengths.log_probs = lambda encoded: scores.log_softmax(-1).expand(len(encoded.padding), -1)  # type: ignore[method-assign]
    return lengths


def test_top_takes_the_most_likely_lengths() -> None:
    predictor = constant_predictor(torch.tensor([0.0, 5.0, 1.0, 4.0, 2.0]), max_length=20)
    lengths, scores = predictor.propose(encoder_output([7, 3]), 3, top_lengths)
    assert lengths.tolist() == [[6, 8, 9], [2, 4, 5]]
    assert (scores[:, :-1] >= scores[:, 1:]).all()


def test_around_takes_the_most_likely_length_and_its_neighbors() -> None:
    predictor = constant_predictor(torch.tensor([0.0, 1.0, 5.0, 1.0, 2.0]), max_length=20)
    assert predictor.propose(encoder_output([7]), 3, neighboring_lengths)[0].tolist() == [[6, 7, 8]]


def test_around_takes_only_possible_lengths_and_none_twice() -> None:
    predictor = constant_predictor(torch.tensor([0.0, 0.0, 5.0, 0.0, 0.0]), max_length=8)
    lengths, scores = predictor.propose(encoder_output([1, 4, 8, 7]), 5, neighboring_lengths)
    assert lengths.tolist() == [[1, 2, 3, 4, 5], [2, 3, 4, 5, 6], [4, 5, 6, 7, 8], [4, 5, 6, 7, 8]]
    assert scores.isfinite().all()


def test_no_length_is_below_one_or_beyond_the_longest() -> None:
    predictor = constant_predictor(torch.tensor([9.0, 8.0, 1.0, 7.0, 6.0]), max_length=3)
    for choose in (top_lengths, neighboring_lengths):
        lengths, _ = predictor.propose(encoder_output([2, 1, 3]), 4, choose)
        assert lengths.min() >= 1
        assert lengths.max() <= 3
    assert predictor.propose(encoder_output([2]), 1, top_lengths)[0].tolist() == [[1]]


def test_every_length_can_be_proposed_for_the_longest_source() -> None:
    torch.manual_seed(1)
    lengths, scores = LengthPredictor(4, max_length=5, max_source=400).propose(
        encoder_output([400, 2]), 5, top_lengths
    )
    assert lengths.sort(1).values.tolist() == [[1, 2, 3, 4, 5]] * 2
    assert scores.isfinite().all()


@pytest.mark.parametrize("choose", [top_lengths, neighboring_lengths])
def test_every_length_can_be_proposed_for_the_shortest_source(choose: Any) -> None:
    lengths, scores = LengthPredictor(4, max_length=300).propose(encoder_output([5, 1]), 300, choose)
    assert lengths.sort(1).values.tolist() == [list(range(1, 301))] * 2
    assert scores.isfinite().all()


def test_padding_does_not_change_the_lengths() -> None:
    torch.manual_seed(1)
    predictor = LengthPredictor(4, max_length=50)
    whole = encoder_output([5, 2])
    alone = EncoderOutput(whole.states[1:, :2], whole.padding[1:, :2], whole.keys, whole.values)
    together = predictor.log_probs(whole)[1]
    assert torch.allclose(predictor.log_probs(alone)[0], together, atol=1e-6)


def test_the_loss_is_the_nll_of_the_true_offset_clipped_to_the_largest() -> None:
    predictor = LengthPredictor(4, max_length=2, max_offset=2)
    canvas = SplitLayout(0).make_canvas(
        RaggedRows.from_lists([[1, 1, 1], [1]]), RaggedRows.from_lists([[1, 1], [1] * 9])
    )
    encoded = EncoderOutput(torch.randn(2, 3, 4), canvas.source.padding, torch.empty(0), torch.empty(0))
    nothing = torch.empty(0)
    trace = LossInputs(canvas, nothing, nothing, Estimate(nothing, nothing), encoded, None, None, None)  # type: ignore[arg-type]
    term = LengthLoss(length_predictor=predictor)
    expected = -predictor.log_probs(encoded)[[0, 1], [1, 4]]  # offsets −1 and 8, clipped to 2
    assert torch.allclose(term.value(trace)[:, 0], expected)
    assert term.make_mask(canvas).tolist() == [[True], [True]]


def test_a_beam_wider_than_the_longest_length_tries_each_length_once() -> None:
    predictor = LengthPredictor(4, max_length=3, max_offset=16)
    lengths, scores = predictor.propose(encoder_output([2, 5]), 7, top_lengths)
    assert [sorted(row) for row in lengths.tolist()] == [[1, 2, 3], [1, 2, 3]]
    assert scores.isfinite().all()
