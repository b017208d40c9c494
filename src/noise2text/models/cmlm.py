"""The conditional masked language model and mask-predict (Ghazvininejad et al., EMNLP 2019).

Training masks k ~ Uniform{1, …, n} of the n target tokens and predicts them from the others and the source.
Generation starts with all tokens masked. At iteration t = 0, …, T − 1

    y_i = argmax_w p(y_i = w | x, y_unmasked),   s_i = log p(y_i)    for the masked i; the others keep both
    masked ← the ⌊n (T − t − 1) / T⌋ positions with the lowest s

so that one iteration is parallel decoding. Of the candidates of all lengths, the one with the highest mean of
s is selected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from noise2text.core.random import make_key, uniform
from noise2text.data.layouts.base import Canvas, Layout
from noise2text.data.layouts.template import Template, make_template
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.losses import LossTerm, TokenLoss, label_smoothed_nll
from noise2text.generation.decoder import Decoder, SentenceCandidates, SourceBatch, Stage, TokenTraceStep
from noise2text.generation.parallel import ProposeLengths
from noise2text.models.baseline_config import MaskPredictGenerationConfig
from noise2text.models.iterative_refinement import (
    IterativeRefinementModel,
    build_nonautoregressive_transformer,
)
from noise2text.nn.denoiser import EncoderOutput
from noise2text.nn.length_predictor import LengthPredictor, top_lengths
from noise2text.nn.nonautoregressive_transformer import NonAutoregressiveTransformer
from noise2text.training.objective import Objective

__all__ = [
    "CMLMModel",
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
        transformer: NonAutoregressiveTransformer,
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
    predict: Callable[[Tensor], Tensor], tokens: Tensor, open_positions: Tensor, *, mask: int, iterations: int
) -> list[MaskPredictStep]:
    """The iterations over the open positions (B, L); `predict` gives log p (B, L, V) of masked texts."""
    n = open_positions.sum(1)
    masked, scores = open_positions, torch.zeros_like(tokens, dtype=torch.float)
    steps = []
    for t in range(1, iterations + 1):
        best = predict(torch.where(masked, mask, tokens)).max(-1)
        tokens = torch.where(masked, best.indices, tokens)
        scores = torch.where(masked, best.values, scores)
        steps.append(MaskPredictStep(masked, tokens, scores))
        masked = select_lowest(
            scores.masked_fill(~open_positions, torch.inf), n * (iterations - t) // iterations
        )
    return steps


@dataclass(frozen=True)
class MaskPredictDecoder(Decoder):
    """The parts of a CMLM that decode all lengths of all sentences at once."""

    transformer: NonAutoregressiveTransformer
    layout: Layout
    config: MaskPredictGenerationConfig
    propose_lengths: ProposeLengths
    mask: int
    forbidden: Tensor  # (V,), True for tokens that are never generated
    template: Template | None = None

    def stages(self, *, trace: bool = False) -> list[Stage]:
        return [partial(self._refine, trace=trace)]

    @torch.inference_mode()
    def _refine(self, batch: SourceBatch, *, trace: bool) -> list[SentenceCandidates]:
        """The candidates of each sentence, the likeliest length first."""
        source = self.layout.make_source(RaggedRows.from_lists(batch.rows)).to(self.forbidden.device)
        encoded = self.transformer.encode(source)
        lengths, _ = self.propose_lengths(encoded)
        if self.template is not None:
            lengths = self.template.fit_lengths(lengths, self.transformer.position_embedding.num_embeddings)
        canvas = self.layout.make_empty_canvas(source, lengths, width=int(lengths.max()))
        if self.template is not None:
            canvas = self.layout.apply_template(canvas, self.template)
        open_positions = canvas.open_positions

        def predict(tokens: Tensor) -> Tensor:
            return self.transformer.log_probs(
                self.transformer(tokens, canvas.padding, encoded), self.forbidden
            )

        iterations = self.config.iterations
        steps = mask_predict(predict, canvas.tokens, open_positions, mask=self.mask, iterations=iterations)
        scores = (steps[-1].scores * open_positions).sum(1) / open_positions.sum(1)
        rows = self._group_by_sentence(canvas, steps[-1].tokens)
        traces = self._trace_sentences(canvas, steps) if trace else [[] for _ in rows]
        decoded = zip(rows, scores.view(lengths.shape).tolist(), traces, strict=True)
        return [SentenceCandidates(*sentence) for sentence in decoded]

    def _trace_sentences(
        self, canvas: Canvas, steps: Sequence[MaskPredictStep]
    ) -> list[list[TokenTraceStep]]:
        """The steps of each sentence."""
        traced = []
        for number, step in enumerate(steps):
            masked = torch.where(step.masked, self.mask, step.tokens)
            confidence = step.scores.exp().masked_fill(canvas.given, 1.0)
            grouped = (self._group_by_sentence(canvas, each) for each in (masked, step.tokens, confidence))
            time = 1 - number / len(steps)
            traced.append([TokenTraceStep(time, *sentence) for sentence in zip(*grouped, strict=True)])
        return [list(sentence) for sentence in zip(*traced, strict=True)]

    def _group_by_sentence(self, canvas: Canvas, values: Tensor) -> list[list[list[Any]]]:
        """The values (B·C, L) of each sentence's candidates, at the positions of the text."""
        spans = self.layout.locate_targets(canvas, canvas.tokens)  # the lengths are given
        rows = [row[span] for row, span in zip(values.tolist(), spans, strict=True)]
        sentences = len(canvas.source.tokens)
        size = len(rows) // sentences
        return [rows[i * size : (i + 1) * size] for i in range(sentences)]


class CMLMModel(IterativeRefinementModel):
    """A masked language model of the target that predicts its length first."""

    generation_config: MaskPredictGenerationConfig

    def __init__(self, config: Any, tokenizer: Tokenizer) -> None:
        super().__init__(config, tokenizer)
        self.transformer = build_nonautoregressive_transformer(
            config.model, tokenizer, source_positions=self.max_source, target_positions=self.max_target
        )
        self.lengths = LengthPredictor(
            config.model.model_dim, max_length=self.max_target, max_source=self.max_source
        )

    def build_decoder(self, config: MaskPredictGenerationConfig) -> MaskPredictDecoder:
        template = make_template(config, self.tokenizer, self.max_target)
        return MaskPredictDecoder(
            self.transformer,
            self.layout,
            config,
            propose_lengths=partial(self._propose_lengths, config=config, template=template),
            mask=self.tokenizer.mask,
            forbidden=self.forbidden,
            template=template,
        )

    def _propose_lengths(
        self, encoded: EncoderOutput, config: MaskPredictGenerationConfig, template: Template | None
    ) -> tuple[Tensor, Tensor]:
        length = config.find_length(template, max_length=self.max_target)
        if length is None:
            return self.lengths.propose(encoded, config.length_beam, top_lengths)
        lengths = torch.full_like(encoded.padding[:, :1], length, dtype=torch.long)
        return lengths, torch.zeros_like(lengths, dtype=torch.float)
