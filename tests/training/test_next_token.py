"""The objective of what writes from left to right is torch's label-smoothed cross-entropy."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

from noise2text.data.layouts.split_with_end import SplitWithEndLayout
from noise2text.data.ragged import RaggedRows
from noise2text.nn.autoregressive import shift_right
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.recurrent import GRU
from noise2text.training.next_token import NextTokenObjective

BOS, EOS = 2, 3


def test_the_loss_is_the_smoothed_cross_entropy_of_targets_and_ends() -> None:
    torch.manual_seed(0)
    network = GRU(TokenEmbedding(12, 8), model_dim=6, layers=1, dropout=0.0)
    canvas = SplitWithEndLayout(0, eos=EOS).make_canvas(
        RaggedRows.from_lists([[5, 6], [7]]), RaggedRows.from_lists([[8, 9, 10], [11]])
    )
    objective = NextTokenObjective(network, bos=BOS, label_smoothing=0.1)
    token_losses = objective(canvas, None)
    logits = network(shift_right(canvas.tokens, BOS), network.encode(canvas.source)).transpose(1, 2)
    targets = canvas.tokens.masked_fill(canvas.padding, -100)
    for name, smoothing in (("smoothed", 0.1), ("nll", 0.0)):
        expected = cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
        torch.testing.assert_close(token_losses[name].total(), expected)
    assert objective.counts(canvas)["smoothed"] == 4 + 2
    assert objective.loss({"smoothed": torch.tensor(2.0), "nll": torch.tensor(9.0)}) == 2
