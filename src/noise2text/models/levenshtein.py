"""The Levenshtein Transformer (Gu et al., NeurIPS 2019): a draft is refined by deleting and inserting.

One transformer, three heads over its states h of the draft y, which stands between begin and end:

    π_del(d | i) = softmax(A·h_i)              keep or delete the token y_i
    π_plh(p | i) = softmax(B·[h_i; h_{i+1}])   how many placeholders to open between y_i and y_{i+1}
    π_tok(t | i) = softmax(E·Q·h_i)            the token of a placeholder

An iteration does the three in turn, each in parallel over all positions. Training imitates the oracle
(`edits`) on drafts that the policies make for each other: insertion mends the reference after a random number
of tokens was dropped, deletion mends what the model's own tokens make of the oracle's placeholders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from noise2text.core.random import key, uniform
from noise2text.data.layouts.canvas import Canvas
from noise2text.diffusion.losses import Tally, smoothed
from noise2text.models.baseline_config import LevenshteinSettings
from noise2text.models.cmlm import hide
from noise2text.models.levenshtein_edits import align, deleted, inserted, missing, move, to_insert
from noise2text.nn.denoiser import Memory
from noise2text.nn.draft_transformer import Editor
from noise2text.training.objective import Objective

__all__ = ["EditDraws", "EditObjective", "Marks", "Page", "Policies", "Refiner", "bounded"]


@dataclass(frozen=True)
class Marks:
    """The special tokens of a draft."""

    pad: int
    begin: int
    end: int
    placeholder: int


class Policies(nn.Module):
    """The three heads of one editor; each reads the draft anew."""

    def __init__(self, editor: Editor, *, width: int, most: int) -> None:
        """`most` is the largest number of placeholders that a gap can get at once."""
        super().__init__()
        self.editor, self.most = editor, most
        self.deletes = nn.Linear(width, 2, bias=False)
        self.opens = nn.Linear(2 * width, most + 1, bias=False)
        for head in (self.deletes, self.opens):
            nn.init.normal_(head.weight, std=0.02)

    def deletions(self, tokens: Tensor, padding: Tensor, memory: Memory) -> Tensor:
        """log p of keeping and of deleting each token, (B, L, 2)."""
        return self.deletes(self.editor(tokens, padding, memory)).float().log_softmax(-1)

    def openings(self, tokens: Tensor, padding: Tensor, memory: Memory) -> Tensor:
        """log p of each number of placeholders in each gap, (B, L − 1, most + 1)."""
        h = self.editor(tokens, padding, memory)
        return self.opens(torch.cat([h[:, :-1], h[:, 1:]], -1)).float().log_softmax(-1)

    def words(
        self, tokens: Tensor, padding: Tensor, memory: Memory, forbidden: Tensor | None = None
    ) -> Tensor:
        """log p of every token at every position, (B, L, V)."""
        return self.editor.log_probabilities(self.editor(tokens, padding, memory), forbidden)


def bounded(canvas: Canvas, marks: Marks) -> Tensor:
    """The target between its marks, (B, L + 2)."""
    n = canvas.scored.sum(1, keepdim=True)
    inner = torch.where(canvas.scored, canvas.tokens, marks.pad)
    row = nn.functional.pad(nn.functional.pad(inner, (1, 0), value=marks.begin), (0, 1), value=marks.pad)
    return row.scatter(1, n + 1, marks.end)


@dataclass(frozen=True)
class EditDraws:
    """What chance decides for a batch: the tokens dropped, and the quantiles of those put in their place."""

    dropped: Tensor  # (B, L + 2)
    quantiles: Tensor  # (B, L + 2)


class EditObjective(Objective):
    """Imitate the oracle in deleting, opening gaps and filling them; each a sum over the row's places."""

    def __init__(
        self, policies: Policies, marks: Marks, *, forbidden: Tensor, smoothing: float, from_nothing: float
    ) -> None:
        super().__init__({}, {"open": 1.0, "fill": 1.0, "delete": 1.0})
        self.recordable = False  # the oracle counts on the host
        self.policies, self.marks = policies, marks
        self.smoothing, self.from_nothing = smoothing, from_nothing
        self.register_buffer("forbidden", forbidden, persistent=False)

    forbidden: Tensor

    def counts(self, canvas: Canvas) -> dict[str, Tensor]:
        """The target's tokens for each policy, so that their sums, not their means, are weighed."""
        return dict.fromkeys(self.weights, canvas.scored.sum())

    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> EditDraws:
        nothing_left = uniform(key(keys, 2)) < self.from_nothing
        # At times nothing is dropped: insertion has to learn to leave a finished text alone.
        dropped = torch.where(nothing_left[:, None], canvas.scored, hide(canvas, keys, least=0))
        places = torch.arange(canvas.tokens.shape[1] + 2, device=keys.device)
        return EditDraws(nn.functional.pad(dropped, (1, 1)), uniform(key(keys[:, None], 3, places)))

    def forward(self, canvas: Canvas, draws: EditDraws) -> dict[str, Tally]:
        pad, policies = self.marks.pad, self.policies
        memory = policies.editor.read(canvas.source)
        reference = bounded(canvas, self.marks)
        padding = reference == pad
        draft = move(reference, deleted(reference, draws.dropped, pad=pad), torch.full_like(reference, pad))
        kept = align(draft, reference, pad=pad)
        lacking = to_insert(kept).clamp(max=policies.most)
        opened = policies.openings(draft, draft == pad, memory)
        gone = missing(kept, reference, pad=pad)
        words = policies.words(torch.where(gone, self.marks.placeholder, reference), padding, memory)
        own = torch.where(gone, self._sampled(words.detach(), draws.quantiles), reference)
        wrong = align(own, reference, pad=pad) < 0
        deletions = policies.deletions(own, padding, memory)
        inner = nn.functional.pad(canvas.scored, (1, 1))
        return {
            "open": Tally(smoothed(opened, lacking, 0.0), draft[:, 1:] != pad),
            "fill": Tally(smoothed(words, reference, self.smoothing), gone),
            "delete": Tally(smoothed(deletions, wrong.long(), 0.0), inner),
        }

    def _sampled(self, log_probabilities: Tensor, quantiles: Tensor) -> Tensor:
        """A token at each position, drawn by its quantile; never a special one."""
        heights = log_probabilities.masked_fill(self.forbidden, -torch.inf).softmax(-1).cumsum(-1)
        return (heights <= quantiles[..., None] * heights[..., -1:]).sum(-1)


@dataclass(frozen=True)
class Page:
    """Drafts between their marks, a row a sentence."""

    tokens: Tensor  # (B, L)
    scores: Tensor  # (B, L), log p of the tokens that were written
    bound: Tensor  # (B, L), 1 for what every text begins with, 2 for what it ends with, 0 for what is written

    def moved(self, places: Tensor, tokens: Tensor) -> Page:
        """The page with everything at its places on a board of these tokens."""
        return Page(
            move(self.tokens, places, tokens),
            move(self.scores, places, torch.zeros_like(tokens)),
            move(self.bound, places, torch.zeros_like(tokens)),
        )


@dataclass(frozen=True)
class Refiner:
    """The parts of a Levenshtein Transformer that decode."""

    policies: Policies
    marks: Marks
    forbidden: Tensor  # (V,), tokens that are never written
    longest: int

    def start(self, prefix: Sequence[int], suffix: Sequence[int], *, sentences: int) -> Page:
        """Nothing but what is given, for each sentence."""
        row = [self.marks.begin, *prefix, *suffix, self.marks.end]
        bound = [1] * (1 + len(prefix)) + [2] * (1 + len(suffix))
        tokens, bounds = (
            torch.tensor([each] * sentences, device=self.forbidden.device) for each in (row, bound)
        )
        return Page(tokens, torch.zeros_like(tokens, dtype=torch.float), bounds)

    def refine(self, page: Page, memory: Memory, how: LevenshteinSettings) -> Iterator[tuple[Page, Page]]:
        """The page with its placeholders and filled, for each iteration until no row changes.

        A row that an iteration does not change is not changed by the next, so rows need not wait or leave.
        """
        for number in range(how.iterations):
            before = page.tokens
            left = self.delete(page, memory) if number else page  # nothing is written yet
            opened = self.open(left, memory, penalty=how.penalty)
            page = self.fill(opened, memory)
            yield opened, page
            if torch.equal(before, page.tokens):
                return

    def delete(self, page: Page, memory: Memory) -> Page:
        """The page without the tokens that the policy deletes; what is given stays."""
        pad = self.marks.pad
        doomed = self.policies.deletions(page.tokens, page.tokens == pad, memory).argmax(-1) == 1
        places = deleted(page.tokens, doomed & (page.bound == 0), pad=pad)
        return page.moved(places, torch.full_like(page.tokens, pad))

    def open(self, page: Page, memory: Memory, *, penalty: float) -> Page:
        """The page with placeholders, at most to the longest length, and none within what is given."""
        tokens, pad = page.tokens, self.marks.pad
        log_p = self.policies.openings(tokens, tokens == pad, memory)
        counts = torch.cat([log_p[..., :1] - penalty, log_p[..., 1:]], -1).argmax(-1)
        same = (page.bound[:, 1:] == page.bound[:, :-1]) & (page.bound[:, 1:] > 0)
        counts = counts.masked_fill(same | (tokens[:, 1:] == pad), 0)
        room = (self.longest + 2 - (tokens != pad).sum(1, keepdim=True)).clamp(min=0)
        total = counts.cumsum(1).minimum(room)
        counts = total.diff(dim=1, prepend=torch.zeros_like(room))
        places, lengths = inserted(tokens, counts, pad=pad)
        inside = torch.arange(int(lengths.max()), device=tokens.device) < lengths[:, None]
        return page.moved(places, torch.where(inside, self.marks.placeholder, pad))

    def fill(self, page: Page, memory: Memory) -> Page:
        """The page with the likeliest token for each placeholder."""
        tokens = page.tokens
        best = self.policies.words(tokens, tokens == self.marks.pad, memory, self.forbidden).max(-1)
        empty = tokens == self.marks.placeholder
        filled = torch.where(empty, best.indices, tokens)
        return replace(page, tokens=filled, scores=torch.where(empty, best.values, page.scores))
