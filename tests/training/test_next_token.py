"""The objective of what writes from left to right is torch's label-smoothed cross-entropy."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

from noise2text.data.layouts.split_with_end import Ended
from noise2text.data.ragged import Rows
from noise2text.nn.embeddings import Space
from noise2text.nn.incremental_decoder import shifted
from noise2text.nn.recurrent import GRU
from noise2text.training.next_token import NextToken

BOS, EOS = 2, 3


def test_the_loss_is_the_smoothed_cross_entropy_of_targets_and_ends() -> None:
    torch.manual_seed(0)
    writer = GRU(Space(12, 8), width=6, layers=1, dropout=0.0)
    canvas = Ended(0, eos=EOS).canvas(Rows.of([[5, 6], [7]]), Rows.of([[8, 9, 10], [11]]))
    objective = NextToken(writer, bos=BOS, label_smoothing=0.1)
    tallies = objective(canvas, None)
    logits = writer(shifted(canvas.tokens, BOS), writer.read(canvas.source)).transpose(1, 2)
    targets = canvas.tokens.masked_fill(canvas.padding, -100)
    for name, smoothing in (("smoothed", 0.1), ("nll", 0.0)):
        expected = cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
        torch.testing.assert_close(tallies[name].total(), expected)
    assert objective.counts(canvas)["smoothed"] == 4 + 2
    assert objective.loss({"smoothed": torch.tensor(2.0), "nll": torch.tensor(9.0)}) == 2
