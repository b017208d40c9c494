"""The conditional masked language model and mask-predict (Ghazvininejad et al., EMNLP 2019).

Training masks k ~ Uniform{1, …, n} of the n target tokens and predicts them from the others and the source.
Generation starts with all tokens masked. At iteration t = 0, …, T − 1

    y_i = argmax_w p(y_i = w | x, y_unmasked),   s_i = log p(y_i)    for the masked i; the others keep both
    masked ← the ⌊n (T − t − 1) / T⌋ positions with the lowest s

so that one iteration is parallel decoding. Of the candidates of all lengths, the one with the highest mean of
s is selected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from noise2text.core.random import make_key, uniform
from noise2text.data.layouts.base import Canvas, Layout
from noise2text.data.layouts.template import OPEN_TEMPLATE, Template
from noise2text.data.ragged import RaggedRows
from noise2text.diffusion.losses import LossTerm, TokenLoss, label_smoothed_nll
from noise2text.generation.candidates import DecodedStep, Decoder, SentenceCandidates, SourceBatch, Stage
from noise2text.generation.parallel import ProposeLengths
from noise2text.models.baseline_config import MaskPredictGenerationConfig
from noise2text.nn.draft_transformer import DraftTransformer
from noise2text.nn.length_predictor import LengthPredictor
from noise2text.training.objective import Objective

__all__ = [
    "CmlmObjective",
    "MaskPredictDecoder",
    "MaskPredictStep",
    "mask_predict",
    "sample_mask",
    "select_lowest",
]


def select_lowest(values: Tensor, counts: Tensor) -> Tensor:
    """True at the `counts` (B,) smallest values of each row (B, L); of equal ones the first."""
    return values.argsort(dim=1, stable=True).argsort(dim=1) < counts[:, None]


def sample_mask(canvas: Canvas, keys: Tensor, *, min_hidden: int = 1) -> Tensor:
    """The mask (B, L) of the hidden tokens: k ~ Uniform{min_hidden, …, n} of the n scored ones."""
    count = min_hidden + (uniform(make_key(keys, 0)) * (canvas.scored.sum(1) + 1 - min_hidden)).long()
    positions = torch.arange(canvas.tokens.shape[1], device=keys.device)
    order = uniform(make_key(keys[:, None], 1, positions)).masked_fill(~canvas.scored, torch.inf)
    return select_lowest(order, count)


class CmlmObjective(Objective):
    """The loss of predicting masked target tokens, and the length."""

    def __init__(
        self,
        transformer: DraftTransformer,
        lengths: LengthPredictor,
        *,
        mask: int,
        label_smoothing: float,
        length_loss_weight: float,
    ) -> None:
        super().__init__(
            [
                LossTerm("masked"),
                LossTerm("nll", None, always_computed=True),
                LossTerm("length", length_loss_weight),
            ]
        )
        self.transformer, self.lengths = transformer, lengths
        self.mask, self.label_smoothing = mask, label_smoothing

    def counts(self, canvas: Canvas) -> dict[str, Tensor]:
        """All target tokens, masked or not: the training loop needs the counts before the masks are drawn."""
        tokens, rows = canvas.scored.sum(), canvas.scored.any(1).sum()
        return {"masked": tokens, "nll": tokens, "length": rows}

    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> Tensor:
        return sample_mask(canvas, keys)

    def forward(self, canvas: Canvas, draws: Tensor) -> dict[str, TokenLoss]:
        encoded = self.transformer.encode(canvas.source)
        states = self.transformer(torch.where(draws, self.mask, canvas.tokens), canvas.padding, encoded)
        log_probs = self.transformer.log_probs(states)
        n = canvas.scored.sum(1, keepdim=True)
        weight = 2 * n / (n + 1)  # n over the (n + 1) / 2 tokens that are masked on average
        token_nll = label_smoothed_nll(log_probs, canvas.tokens, 0.0)
        smoothed_nll = label_smoothed_nll(log_probs, canvas.tokens, self.label_smoothing)
        length = self.lengths.nll(encoded, canvas.padding)
        return {
            "masked": TokenLoss(weight * smoothed_nll, draws),
            "nll": TokenLoss(weight * token_nll, draws),
            "length": TokenLoss(length, torch.ones_like(length, dtype=torch.bool)),
        }


@dataclass(frozen=True)
class MaskPredictStep:
    """One iteration: the mask before it, and the tokens and their log-probabilities after it."""

    masked: Tensor  # (B, L)
    tokens: Tensor  # (B, L)
    scores: Tensor  # (B, L)


def mask_predict(
    predict: Callable[[Tensor], Tensor], tokens: Tensor, writable: Tensor, *, mask: int, iterations: int
) -> Iterator[MaskPredictStep]:
    """The iterations over the writable positions (B, L); `predict` gives log p (B, L, V) of masked texts."""
    n = writable.sum(1)
    masked, scores = writable, torch.zeros_like(tokens, dtype=torch.float)
    for t in range(1, iterations + 1):
        best = predict(torch.where(masked, mask, tokens)).max(-1)
        tokens = torch.where(masked, best.indices, tokens)
        scores = torch.where(masked, best.values, scores)
        yield MaskPredictStep(masked, tokens, scores)
        masked = select_lowest(scores.masked_fill(~writable, torch.inf), n * (iterations - t) // iterations)


@dataclass(frozen=True)
class MaskPredictDecoder(Decoder):
    """The parts of a CMLM that decode all lengths of all sentences at once."""

    transformer: DraftTransformer
    layout: Layout
    config: MaskPredictGenerationConfig
    propose_lengths: ProposeLengths
    mask: int
    forbidden: Tensor  # (V,), True for tokens that are never generated
    template: Template = OPEN_TEMPLATE

    def stages(self, *, seed: int, trace: bool = False) -> list[Stage]:
        return [partial(self._refine, trace=trace)]

    @torch.inference_mode()
    def _refine(self, batch: SourceBatch, *, trace: bool) -> list[SentenceCandidates]:
        """The candidates of each sentence, the likeliest length first."""
        source = self.layout.make_source(RaggedRows.from_lists(batch.rows)).to(self.forbidden.device)
        encoded = self.transformer.encode(source)
        lengths = self.template.fit_lengths(
            self.propose_lengths(encoded)[0], self.transformer.position_embedding.num_embeddings
        )
        canvas = self.layout.apply_template(
            self.layout.make_prompt(source, lengths, width=int(lengths.max())), self.template
        )
        writable = ~(canvas.padding | canvas.frozen)

        def predict(tokens: Tensor) -> Tensor:
            return self.transformer.log_probs(
                self.transformer(tokens, canvas.padding, encoded), self.forbidden
            )

        steps = []
        iterations = mask_predict(
            predict, canvas.tokens, writable, mask=self.mask, iterations=self.config.iterations
        )
        for number, step in enumerate(iterations):
            if trace:
                masked = torch.where(step.masked, self.mask, step.tokens)
                rows = self._group_by_sentence(canvas, masked), self._group_by_sentence(canvas, step.tokens)
                steps.append((1 - number / self.config.iterations, *rows))
        scores = (step.scores * writable).sum(1) / writable.sum(1)
        decoded = zip(
            self._group_by_sentence(canvas, step.tokens), scores.view(lengths.shape).tolist(), strict=True
        )
        return [
            SentenceCandidates(
                rows, scored, [DecodedStep(time, noisy[i], clean[i]) for time, noisy, clean in steps]
            )
            for i, (rows, scored) in enumerate(decoded)
        ]

    def _group_by_sentence(self, canvas: Canvas, tokens: Tensor) -> list[list[list[int]]]:
        """The token rows of each sentence's candidates."""
        rows, sentences = self.layout.extract_targets(canvas, tokens), len(canvas.source.tokens)
        size = len(rows) // sentences
        return [rows[i * size : (i + 1) * size] for i in range(sentences)]
