"""The terms of the objective: one value per position or per sentence, not yet reduced.

    vlb       ‖ẑ₀ − z₀‖² / d                 (Difformer, eq. 1; the mean over channels)
    anchor    −log p(y | ẑ₀), label-smoothed  (Difformer, eq. 2)
    rounding  −log p(y | z₀)                  (Diffusion-LM)
    prior     ‖α(1)·z₀‖² / d                  (Diffusion-LM)
    nll       −log p(y | ẑ₀)                  (logged, not trained on)
    length    −log p(n | x)                   (Difformer, section 3.3)

Any combination is an objective, and a recipe lists its terms:

    terms=[MseLoss(), AnchorLoss(smoothing=0.1), LengthLoss(length_predictor=…), NllLoss(weight=None)]

The mask of a term does not depend on the model. The training loop can therefore divide by the counts of a
whole step, over all micro-batches and processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from noise2text.data.layouts.base import Canvas
from noise2text.nn.denoiser import Denoiser, EncoderOutput, Estimate, NoiseLevel
from noise2text.nn.embeddings import LazyLogits
from noise2text.nn.length_predictor import LengthPredictor

__all__ = [
    "LOSS_AVERAGES",
    "AnchorLoss",
    "LengthLoss",
    "LossInputs",
    "LossTerm",
    "MseLoss",
    "NllLoss",
    "PriorLoss",
    "RoundingLoss",
    "SentenceMean",
    "SmoothedNllLoss",
    "TokenLoss",
    "TokenNllFunction",
    "TokenPrediction",
    "average_by_sentence",
    "label_smoothed_nll",
    "scored_positions",
    "sentences",
    "token_nll",
    "visible_positions",
]


TokenNllFunction = Callable[[LazyLogits, Tensor], tuple[Tensor, Tensor]]
"""The signature of `token_nll`; `acceleration/` has faster functions of the same signature."""


def token_nll(logits: LazyLogits, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """−log p at the tokens, and the mean of −log p over the vocabulary; both have the shape of the tokens."""
    log_probs = logits.logits().float().log_softmax(-1)  # (…, V)
    return -log_probs.gather(-1, tokens[..., None])[..., 0], -log_probs.mean(-1)


def label_smoothed_nll(log_probs: Tensor, tokens: Tensor, smoothing: float) -> Tensor:
    """−log p at the tokens, with the share `smoothing` of the target spread over the whole vocabulary."""
    spread = -log_probs.mean(-1)
    return smoothing * spread - (1 - smoothing) * log_probs.gather(-1, tokens[..., None])[..., 0]


class TokenPrediction(Protocol):
    """The inputs of the terms over the vocabulary, from a diffusion model or an autoregressive one."""

    @property
    def canvas(self) -> Canvas: ...

    @property
    def logits(self) -> LazyLogits: ...

    @property
    def token_nll(self) -> TokenNllFunction: ...


@dataclass(frozen=True)
class LossInputs:
    """What one pass of the denoiser over a training canvas computed: the inputs of all terms.

    Pass `functools.cache(token_nll)` where several terms share one pass over the vocabulary.
    """

    canvas: Canvas
    z0: Tensor  # (B, L, D)
    target: Tensor  # (B, L, D), what ẑ₀ is compared with
    estimate: Estimate
    encoded: EncoderOutput
    denoiser: Denoiser
    level: NoiseLevel
    logits: LazyLogits  # (B, L, V), they round ẑ₀ to tokens
    token_nll: TokenNllFunction = token_nll


class TokenLoss(NamedTuple):
    """The values of a term and the mask of those that count; an `Objective` returns one for each term.

    It is a tuple, in which DDP and FSDP find tensors.

    Fields:
        values: (B, L), one per token, or (B, 1), one per sentence.
        mask: of the same shape.

    >>> import torch
    >>> from noise2text import TokenLoss
    >>> loss = TokenLoss(torch.tensor([[1.0, 2.0, 9.0]]), mask=torch.tensor([[True, True, False]]))
    >>> loss.total(), loss.row_means()
    (tensor(3.), tensor([1.5000]))
    """

    values: Tensor  # (B, L) or (B, 1)
    mask: Tensor  # the same shape

    def total(self) -> Tensor:
        """The sum of the values that count."""
        return torch.where(self.mask, self.values, 0).sum()

    def row_means(self) -> Tensor:
        """The mean of the values that count in each row, (B,)."""
        return torch.where(self.mask, self.values, 0).sum(1) / self.mask.sum(1)


def scored_positions(canvas: Canvas) -> Tensor:
    """The positions that the layout scores."""
    return canvas.scored


def visible_positions(canvas: Canvas) -> Tensor:
    """All positions except padding, the given ones included."""
    return ~canvas.padding


def sentences(canvas: Canvas) -> Tensor:
    """One value per sentence, (B, 1)."""
    return torch.ones_like(canvas.padding[:, :1])


@dataclass(frozen=True)
class LossTerm:
    """A named, weighted part of an objective.

    Fields:
        name: what the logs call it.
        weight: its weight in the loss; a term of weight None is logged and not trained on.
        always_computed: whether a term of weight None is computed at every step, not only at logged ones.
        make_mask: from a canvas to the mask of the values that count, (B, L) or (B, 1).

    A term defines `value`. An objective that computes a term itself lists a plain LossTerm.

    >>> from dataclasses import dataclass
    >>> from noise2text import LossTerm
    >>> @dataclass(frozen=True)
    ... class AbsoluteError(LossTerm):
    ...     name: str = "absolute"
    ...     def value(self, inputs):
    ...         return (inputs.estimate.z0 - inputs.target).abs().mean(-1)  # (B, L)
    >>> AbsoluteError(weight=0.5).name
    'absolute'
    """

    name: str
    weight: float | None = 1.0
    _: KW_ONLY
    always_computed: bool = False
    make_mask: Callable[[Canvas], Tensor] = scored_positions

    def value(self, inputs: LossInputs) -> Tensor:
        """The loss at each position, of the mask's shape."""
        raise NotImplementedError(f"The objective computes {self.name} itself.")


@dataclass(frozen=True)
class MseLoss(LossTerm):
    """The squared error of ẑ₀; its gradient also moves the target, the embeddings.

    Its name is Difformer's, which calls the unweighted squared error L_VLB; the bound itself is in
    `diffusion/variational_bound.py`.

    `weighting` gives a factor for each noise level, 1 if it is None: with the signal-to-noise ratio, the loss
    is the squared error of ε.
    """

    name: str = "vlb"
    _: KW_ONLY
    weighting: Callable[[NoiseLevel], Tensor] | None = None

    def value(self, inputs: LossInputs) -> Tensor:
        error = (inputs.estimate.z0 - inputs.target).square().mean(-1)
        if self.weighting is None:
            return error
        return self.weighting(inputs.level)[..., 0].to(error.dtype) * error


@dataclass(frozen=True)
class NllLoss(LossTerm):
    """−log p of the right token, by the logits of an autoregressive model or of ẑ₀."""

    name: str = "nll"

    def value(self, inputs: TokenPrediction) -> Tensor:
        return inputs.token_nll(inputs.logits, inputs.canvas.tokens)[0]


@dataclass(frozen=True)
class SmoothedNllLoss(LossTerm):
    """−log p of the right token with label smoothing: the share `smoothing` goes to the whole vocabulary."""

    name: str = "smoothed"
    _: KW_ONLY
    smoothing: float = 0.1

    def value(self, inputs: TokenPrediction) -> Tensor:
        nll, mean = inputs.token_nll(inputs.logits, inputs.canvas.tokens)
        return self.smoothing * mean + (1 - self.smoothing) * nll


@dataclass(frozen=True)
class AnchorLoss(SmoothedNllLoss):
    """−log p of the right token after rounding ẑ₀, by which ẑ₀ trains the embeddings (Difformer, eq. 2)."""

    name: str = "anchor"


@dataclass(frozen=True)
class RoundingLoss(LossTerm):
    """−log p of the right token after rounding z₀ itself."""

    name: str = "rounding"

    def value(self, inputs: LossInputs) -> Tensor:
        return inputs.token_nll(inputs.denoiser.embedding.lazy_logits(inputs.z0), inputs.canvas.tokens)[0]


@dataclass(frozen=True)
class PriorLoss(LossTerm):
    """The mean square of the signal that is left of z₀ at time 1; `final_alpha` is α(1)."""

    name: str = "prior"
    _: KW_ONLY
    final_alpha: float = 0.0

    def value(self, inputs: LossInputs) -> Tensor:
        return (self.final_alpha * inputs.z0).square().mean(-1)


@dataclass(frozen=True)
class LengthLoss(LossTerm):
    """−log p of the right length, one value per sentence."""

    name: str = "length"
    _: KW_ONLY
    make_mask: Callable[[Canvas], Tensor] = sentences
    length_predictor: LengthPredictor

    def value(self, inputs: LossInputs) -> Tensor:
        return self.length_predictor.nll(inputs.encoded, inputs.canvas.padding)


@dataclass(frozen=True)
class SentenceMean(LossTerm):
    """The mean of another term over each sentence, one value per sentence."""

    _: KW_ONLY
    make_mask: Callable[[Canvas], Tensor] = sentences
    term: LossTerm

    def value(self, inputs: LossInputs) -> Tensor:
        counted = self.term.make_mask(inputs.canvas)  # (B, L)
        total = torch.where(counted, self.term.value(inputs), 0).sum(1, keepdim=True)
        return total / counted.sum(1, keepdim=True).clamp(min=1)


def average_by_sentence(term: LossTerm) -> SentenceMean:
    """The term with the same name and weight in which every sentence weighs the same, however long it is.

    Other terms weigh all tokens the same, so a long sentence counts for more than a short one.

    >>> average_by_sentence(MseLoss(weight=0.5)).weight
    0.5
    """
    return SentenceMean(term.name, term.weight, always_computed=term.always_computed, term=term)


LOSS_AVERAGES: dict[str, Callable[[LossTerm], LossTerm]] = {
    "tokens": lambda term: term,
    "sentences": average_by_sentence,
}
"""What a term is the mean of, by the names of the setting `loss_average`."""
