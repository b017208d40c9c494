"""Predicts the target's length: a class of (target − source length), from the mean encoder state.

`ReleasedLengthPredictor` has the classes of Difformer's released code, whose sources and targets have a
begin and an end token each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from noise2text.nn.denoiser import EncoderOutput

__all__ = [
    "LENGTH_PROPOSALS",
    "LengthPredictor",
    "ReleasedLengthPredictor",
    "neighboring_lengths",
    "top_lengths",
]


class LengthPredictor(nn.Module):
    """p(n | x) over the offsets −max_offset … max_offset from the source's length."""

    num_special_tokens: ClassVar[int] = 0
    """The special tokens among the positions of a source, which a proposed length leaves out."""

    def __init__(
        self, model_dim: int, *, max_length: int, max_source: int = 0, max_offset: int = 128
    ) -> None:
        """The longest target and source are `max_length` and `max_source`; all their offsets are classes."""
        super().__init__()
        self.max_length, self.max_offset = max_length, max(max_offset, max_source, max_length)
        self.offsets = self.find_offsets()
        self.output_projection = nn.Linear(model_dim, len(self.offsets), bias=False)
        nn.init.normal_(self.output_projection.weight, std=0.02)

    def find_offsets(self) -> range:
        """The offset of each class, in ascending order."""
        return range(-self.max_offset, self.max_offset + 1)

    def log_probs(self, encoded: EncoderOutput) -> Tensor:
        """log p of every offset, (B, K)."""
        return self.output_projection(encoded.mean_state()).float().log_softmax(-1)

    def nll(self, encoded: EncoderOutput, padding: Tensor) -> Tensor:
        """−log p of the true lengths (B, 1), counted from the target's padding (B, L)."""
        offset = (~padding).sum(1) - (~encoded.padding).sum(1)
        classes = offset.clamp(self.offsets[0], self.offsets[-1]) - self.offsets[0]
        return -self.log_probs(encoded).gather(1, classes[:, None])

    def propose(
        self, encoded: EncoderOutput, beam: int, choose: Callable[[Tensor, int], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The lengths (B, beam) to try, between 1 and the longest, and their log-probabilities.

        The beam is at most the number of lengths. A wider one would try some lengths twice, and their texts
        would count twice in the selection.
        """
        offsets = torch.arange(self.offsets[0], self.offsets[-1] + 1, device=encoded.padding.device)
        lengths = (~encoded.padding).sum(1, keepdim=True) - self.num_special_tokens + offsets  # (B, K)
        possible = (lengths >= 1) & (lengths <= self.max_length)
        scores = self.log_probs(encoded).masked_fill(~possible, -torch.inf)
        chosen = choose(scores, min(beam, self.max_length))
        return lengths.gather(1, chosen).clamp(1, self.max_length), scores.gather(1, chosen)


class ReleasedLengthPredictor(LengthPredictor):
    """p(n | x) over fairseq's 256 offsets, −128 … 127, of texts between a begin and an end token."""

    num_special_tokens: ClassVar[int] = 2

    def find_offsets(self) -> range:
        return range(-128, 128)


def top_lengths(scores: Tensor, beam: int) -> Tensor:
    """The b₁ most likely classes (Difformer, section 3.3)."""
    return scores.topk(min(beam, scores.shape[1]), dim=1).indices


def neighboring_lengths(scores: Tensor, beam: int) -> Tensor:
    """The most likely class and its possible neighbours on both sides (Difformer's released code)."""
    possible = scores > -torch.inf
    first, count = possible.int().argmax(1, keepdim=True), possible.sum(1, keepdim=True)
    start = scores.argmax(1, keepdim=True) - beam // 2
    start = torch.maximum(torch.minimum(start, first + count - beam), first)
    return start + torch.arange(beam, device=scores.device)


LENGTH_PROPOSALS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "top": top_lengths,
    "around": neighboring_lengths,
}
