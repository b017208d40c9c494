"""The conditional masked language model and mask-predict (Ghazvininejad et al., EMNLP 2019).

Training hides k ~ Uniform{1, …, n} of the n target tokens and learns to predict them from the rest and the
source. Generation starts with all of them hidden. At iteration t = 0, …, T − 1

    y_i = argmax_w p(y_i = w | x, y_seen),   s_i = log p(y_i)        for the masked i; the others keep both
    masked ← the ⌊n (T − t − 1) / T⌋ positions with the lowest s

so that one iteration is parallel decoding. Among the candidate lengths the best mean of s wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from noise2text.core.random import key, uniform
from noise2text.data.layouts.canvas import Canvas, Layout, Source
from noise2text.data.layouts.template import OPEN, Template
from noise2text.diffusion.losses import Tally, smoothed
from noise2text.generation.parallel import Draft, Propose, Step
from noise2text.models.baseline_config import MaskPredictSettings
from noise2text.nn.draft_transformer import Editor
from noise2text.nn.length_predictor import Lengths
from noise2text.training.objective import Objective

__all__ = ["MaskPredict", "MaskedObjective", "Stage", "hide", "lowest", "mask_predict"]


def lowest(values: Tensor, counts: Tensor) -> Tensor:
    """True at the `counts` (B,) smallest values of each row (B, L); of equal ones the first."""
    return values.argsort(dim=1, stable=True).argsort(dim=1) < counts[:, None]


def hide(canvas: Canvas, keys: Tensor, *, least: int = 1) -> Tensor:
    """Which scored tokens (B, L) are hidden: as many as the key says, the least to n alike."""
    count = least + (uniform(key(keys, 0)) * (canvas.scored.sum(1) + 1 - least)).long()
    places = torch.arange(canvas.tokens.shape[1], device=keys.device)
    order = uniform(key(keys[:, None], 1, places)).masked_fill(~canvas.scored, torch.inf)
    return lowest(order, count)


class MaskedObjective(Objective):
    """Hide some of the target, predict it back; and predict the length."""

    def __init__(
        self, editor: Editor, lengths: Lengths, *, mask: int, smoothing: float, length_factor: float
    ) -> None:
        super().__init__({}, {"masked": 1.0, "length": length_factor})
        self.editor, self.lengths, self.mask, self.smoothing = editor, lengths, mask, smoothing

    def counts(self, canvas: Canvas) -> dict[str, Tensor]:
        """All target tokens, however many are hidden: the loop divides before anything is drawn."""
        tokens, rows = canvas.scored.sum(), canvas.scored.any(1).sum()
        return {"masked": tokens, "nll": tokens, "length": rows}

    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> Tensor:
        return hide(canvas, keys)

    def forward(self, canvas: Canvas, draws: Tensor) -> dict[str, Tally]:
        memory = self.editor.read(canvas.source)
        states = self.editor(torch.where(draws, self.mask, canvas.tokens), canvas.padding, memory)
        log_probabilities = self.editor.log_probabilities(states)
        n = canvas.scored.sum(1, keepdim=True)
        weight = 2 * n / (n + 1)  # n over the (n + 1) / 2 tokens that are hidden on average
        right = smoothed(log_probabilities, canvas.tokens, 0.0)
        surprise = smoothed(log_probabilities, canvas.tokens, self.smoothing)
        length = self.lengths.surprise(memory, canvas.padding)
        return {
            "masked": Tally(weight * surprise, draws),
            "nll": Tally(weight * right, draws),
            "length": Tally(length, torch.ones_like(length, dtype=torch.bool)),
        }


@dataclass(frozen=True)
class Stage:
    """One iteration: what was masked, and the tokens and log-probabilities after it."""

    masked: Tensor  # (B, L)
    tokens: Tensor  # (B, L)
    scores: Tensor  # (B, L)


def mask_predict(
    predict: Callable[[Tensor], Tensor], tokens: Tensor, writable: Tensor, *, mask: int, iterations: int
) -> Iterator[Stage]:
    """The stages of the writable positions (B, L); `predict` gives log p (B, L, V) of a masked draft."""
    n = writable.sum(1)
    masked, scores = writable, torch.zeros_like(tokens, dtype=torch.float)
    for t in range(1, iterations + 1):
        best = predict(torch.where(masked, mask, tokens)).max(-1)
        tokens = torch.where(masked, best.indices, tokens)
        scores = torch.where(masked, best.values, scores)
        yield Stage(masked, tokens, scores)
        masked = lowest(scores.masked_fill(~writable, torch.inf), n * (iterations - t) // iterations)


@dataclass(frozen=True)
class MaskPredict:
    """The parts of a CMLM that decode all lengths of all sentences at once."""

    editor: Editor
    layout: Layout
    mask: int
    forbidden: Tensor  # (V,), tokens that are never written

    @torch.inference_mode()
    def decode(
        self,
        source: Source,
        how: MaskPredictSettings,
        propose: Propose,
        *,
        given: Template = OPEN,
        trace: bool = False,
    ) -> list[Draft]:
        """The drafts of each sentence, likeliest length first."""
        memory = self.editor.read(source)
        lengths = given.fit(propose(memory)[0], self.editor.positions.num_embeddings)
        canvas = self.layout.give(self.layout.prompt(source, lengths, width=int(lengths.max())), given)
        writable = ~(canvas.padding | canvas.frozen)

        def predict(tokens: Tensor) -> Tensor:
            return self.editor.log_probabilities(self.editor(tokens, canvas.padding, memory), self.forbidden)

        steps = []
        stages = mask_predict(predict, canvas.tokens, writable, mask=self.mask, iterations=how.iterations)
        for number, stage in enumerate(stages):
            if trace:
                seen = torch.where(stage.masked, self.mask, stage.tokens)
                rows = self._read(canvas, seen), self._read(canvas, stage.tokens)
                steps.append((1 - number / how.iterations, *rows))
        scores = (stage.scores * writable).sum(1) / writable.sum(1)
        drafts = zip(self._read(canvas, stage.tokens), scores.view(lengths.shape).tolist(), strict=True)
        return [
            Draft(rows, scored, [Step(time, noisy[i], clean[i]) for time, noisy, clean in steps])
            for i, (rows, scored) in enumerate(drafts)
        ]

    def _read(self, canvas: Canvas, tokens: Tensor) -> list[list[list[int]]]:
        """The rows of each sentence's candidates."""
        rows, sentences = self.layout.read(canvas, tokens), len(canvas.source.tokens)
        size = len(rows) // sentences
        return [rows[i * size : (i + 1) * size] for i in range(sentences)]
