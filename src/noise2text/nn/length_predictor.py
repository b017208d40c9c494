"""How long the target will be: a class of (target − source length), from the mean of the encoder's states."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from noise2text.nn.denoiser import Memory

__all__ = ["PROPOSALS", "Lengths", "around", "top"]


def _count(padding: Tensor) -> Tensor:
    return (~padding).sum(1)


class Lengths(nn.Module):
    """p(n | x) over the offsets −reach … reach from the source's length, so far that each source has all."""

    def __init__(self, width: int, *, longest: int, source: int = 0, reach: int = 128) -> None:
        """The longest target, and the longest source: from none to that one all offsets are within reach."""
        super().__init__()
        self.longest, self.reach = longest, max(reach, source, longest)
        self.classes = nn.Linear(width, 2 * self.reach + 1, bias=False)
        nn.init.normal_(self.classes.weight, std=0.02)

    def log_probabilities(self, memory: Memory) -> Tensor:
        """log p of every offset, (B, 2·reach + 1)."""
        seen = ~memory.padding[..., None]
        pooled = (memory.states * seen).sum(1) / seen.sum(1)
        return self.classes(pooled).float().log_softmax(-1)

    def surprise(self, memory: Memory, padding: Tensor) -> Tensor:
        """−log p of the true lengths (B, 1), which the target's padding tells."""
        offset = _count(padding) - _count(memory.padding)
        classes = offset.clamp(-self.reach, self.reach) + self.reach
        return -self.log_probabilities(memory).gather(1, classes[:, None])

    def propose(
        self, memory: Memory, beam: int, choose: Callable[[Tensor, int], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The lengths (B, beam) worth trying, between 1 and the longest, and their log-probabilities.

        There are no more than so many lengths: a beam that is wider would try some of them twice, and count
        their texts twice when one is selected.
        """
        lengths = _count(memory.padding)[:, None] + torch.arange(
            -self.reach, self.reach + 1, device=memory.padding.device
        )
        possible = (lengths >= 1) & (lengths <= self.longest)
        scores = self.log_probabilities(memory).masked_fill(~possible, -torch.inf)
        chosen = choose(scores, min(beam, self.longest))
        return lengths.gather(1, chosen).clamp(1, self.longest), scores.gather(1, chosen)


def top(scores: Tensor, beam: int) -> Tensor:
    """The b₁ likeliest classes (Difformer, section 3.3)."""
    return scores.topk(min(beam, scores.shape[1]), dim=1).indices


def around(scores: Tensor, beam: int) -> Tensor:
    """The likeliest class and its possible neighbours on both sides (Difformer's released code)."""
    possible = scores > -torch.inf
    first, count = possible.int().argmax(1, keepdim=True), possible.sum(1, keepdim=True)
    start = scores.argmax(1, keepdim=True) - beam // 2
    start = torch.maximum(torch.minimum(start, first + count - beam), first)
    return start + torch.arange(beam, device=scores.device)


PROPOSALS: dict[str, Callable[[Tensor, int], Tensor]] = {"top": top, "around": around}
