"""What to walk: 2D parallel decoding (Difformer, section 3.3).

A sentence is tried at b₁ lengths, each from b₂ noises; all candidates of all sentences of a batch go down
together, and share their sentence's encoding. The host waits once, for the lengths; what is small and
depends on them is then made on the host and sent over.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from noise2text.acceleration.cuda_graphs import GraphCache, round_up_length
from noise2text.core.devices import copy_to_device
from noise2text.core.random import make_key
from noise2text.data.layouts.canvas import Canvas, Layout, Source
from noise2text.data.layouts.template import OPEN_TEMPLATE, Template
from noise2text.diffusion.classifier_guidance import ClassifierGuidance
from noise2text.diffusion.sampler import (
    BuildStepTable,
    PrepareSteps,
    SampledStep,
    build_step_table,
    eager,
    sample,
    strided_times,
)
from noise2text.generation.config import DiffusionGenerationConfig
from noise2text.generation.denoising_likelihood import DenoisingLikelihood
from noise2text.nn.denoiser import Denoiser, EncoderOutput, Estimate, rows_per_chunk

__all__ = [
    "Candidates",
    "DecodedStep",
    "DecodingCoroutine",
    "ParallelDecoder",
    "PreparedBatch",
    "ProposeLengths",
    "run_to_end",
]

TokenRows = list[list[int]]
ProposeLengths = Callable[[EncoderOutput], tuple[Tensor, Tensor]]
"""The lengths (B, b₁) to try for each sentence, and their log-probabilities."""
DecodingCoroutine = Generator[None, None, list["Candidates"]]
"""The way to a batch's drafts; it pauses where the device has work to do and the host has none."""


@dataclass(frozen=True)
class DecodedStep:
    """A sentence's candidates at one time: the noisy canvas and its clean estimate, both rounded."""

    time: float
    noisy: TokenRows
    clean: TokenRows


@dataclass(frozen=True)
class Candidates:
    """A sentence's candidates: tokens and score, best length first; and the steps there, if traced."""

    tokens: TokenRows
    scores: list[float]
    steps: list[DecodedStep]


@dataclass(frozen=True)
class PreparedBatch:
    """Where the candidates of a batch start: a row a candidate, but for the memory."""

    encoded: EncoderOutput
    source: Source
    canvas: Canvas  # on the host
    keys: Tensor  # (B·b₁·b₂,)
    scores: Tensor  # (B·b₁·b₂,), the lengths' log-probabilities

    def device_canvas(self) -> Canvas:
        """The canvas on the device, where its source is already."""
        return replace(self.canvas, source=self.source).to(self.keys.device)


@dataclass(frozen=True)
class ParallelDecoder:
    """The parts of a diffusion system that decode all candidates at once."""

    denoiser: Denoiser
    schedule: nn.Module
    layout: Layout
    num_timesteps: int
    forbidden: Tensor  # (V,), tokens that are never written
    special: Tensor  # (S,), tokens that are no text
    max_length: int  # target that the model can write
    graphs: GraphCache | None = None  # recorded graphs, where there are any
    classifier_guidance: ClassifierGuidance | None = None
    likelihood_scorer: DenoisingLikelihood | None = (
        None  # what scores the texts, if not the walk that wrote them
    )

    @torch.inference_mode()
    def course(
        self,
        source: Source,
        config: DiffusionGenerationConfig,
        propose: ProposeLengths,
        *,
        given: Template = OPEN_TEMPLATE,
        seed: int,
        indices: Tensor,
        trace: bool = False,
    ) -> DecodingCoroutine:
        """The drafts of each sentence; `source` is on the host, `indices` (B,) is where it is in the input.

        Pauses when the lengths, and when the walk, have been asked for.
        """
        prompt = yield from self._prepare_batch(
            source, config, propose, given=given, seed=seed, indices=indices
        )
        canvas, steps = prompt.device_canvas(), []
        for state in self._sample(prompt, canvas, config, seed=seed, last_only=not trace):
            if trace:
                rounded = self._round_to_tokens(canvas, state.estimate)[0]
                steps.append((state.time, self.denoiser.embedding.nearest(state.z), rounded))
        tokens, scores = self._round_to_tokens(canvas, state.estimate)  # (B·C, L)
        kept = ~(canvas.padding | canvas.frozen)
        scores = (scores * kept).sum(1) / kept.sum(1) + prompt.scores
        decoded = yield from self._collect_candidates(prompt, canvas, tokens, scores, steps)
        return decoded

    def _prepare_batch(
        self,
        source: Source,
        config: DiffusionGenerationConfig,
        propose: ProposeLengths,
        *,
        given: Template,
        seed: int,
        indices: Tensor,
    ) -> Generator[None, None, PreparedBatch]:
        """The canvas, the key and the length's score of every candidate."""
        device, graphs = self.forbidden.device, self.graphs
        device_source = source.to(device)
        encoded = (
            graphs.encode(self.denoiser, device_source) if graphs else self.denoiser.encode(device_source)
        )
        proposed, length_scores = propose(encoded)
        if proposed.device.type != "cpu":
            proposed, ready = proposed.to("cpu", non_blocking=True), _mark(device)
            yield
            ready()
        lengths = given.fit_lengths(proposed, self.max_length)
        empty = self._empty_canvas(source, lengths.repeat_interleave(config.noise_beam, dim=1))
        keys = self._noise_keys(source, lengths, seed=seed, indices=indices, noises=config.noise_beam)
        scores = copy_to_device(length_scores.repeat_interleave(config.noise_beam, dim=1).flatten(), device)
        canvas = self.layout.apply_template(empty, given)
        return PreparedBatch(encoded, device_source, canvas, copy_to_device(keys, device), scores)

    def _sample(
        self,
        prompt: PreparedBatch,
        canvas: Canvas,
        config: DiffusionGenerationConfig,
        *,
        seed: int,
        last_only: bool,
        number: int = 0,
    ) -> Iterator[SampledStep]:
        """A walk on the canvas, which is on the device, with the noise of its number."""
        return sample(
            self.denoiser,
            self.schedule,
            prompt.encoded,
            self.denoiser.constrain(canvas),
            make_key(prompt.keys, number) if number else prompt.keys,
            strided_times(config.steps, num_timesteps=self.num_timesteps, stop_early=config.stop_early),
            build_step_table=self._step_table_builder(config, seed),
            prepare=self._prepare(canvas),
            last_only=last_only,
        )

    def _collect_candidates(
        self,
        prompt: PreparedBatch,
        canvas: Canvas,
        tokens: Tensor,
        scores: Tensor,
        steps: Sequence[tuple[float, Tensor, Tensor]],
    ) -> DecodingCoroutine:
        """What was written, sentence by sentence, and the rounded steps there; pauses for the device."""
        device = self.forbidden.device
        if self.likelihood_scorer:
            scores = _score_likelihood(self.likelihood_scorer, prompt, canvas, tokens)
        tokens, scores = (each.to("cpu", non_blocking=True) for each in (tokens, scores))
        done = _mark(device)
        yield
        done()
        rows = self._group_by_sentence(prompt.canvas, tokens)
        traced = [
            (
                time,
                self._group_by_sentence(prompt.canvas, noisy),
                self._group_by_sentence(prompt.canvas, clean),
            )
            for time, noisy, clean in steps
        ]
        return [
            Candidates(
                rows[i], scored, [DecodedStep(time, noisy[i], clean[i]) for time, noisy, clean in traced]
            )
            for i, scored in enumerate(scores.view(len(rows), -1).tolist())
        ]

    def _step_table_builder(self, config: DiffusionGenerationConfig, seed: int) -> BuildStepTable:
        """How paths are made; where steps are recorded, each is made once."""
        new = partial(build_step_table, stochasticity=config.stochasticity(seed), order=config.order)
        return self.graphs.build_step_table(new, config, seed) if self.graphs else new

    def _prepare(self, canvas: Canvas) -> PrepareSteps:
        """How the steps are made; steered ones need gradients, which are not recorded."""
        if self.classifier_guidance:
            return partial(
                eager,
                guide=self.classifier_guidance.for_positions(
                    self.layout.target_mask(canvas) & ~canvas.padding
                ),
            )
        return self.graphs.prepare if self.graphs else eager

    def _empty_canvas(self, source: Source, lengths: Tensor) -> Canvas:
        """The empty canvases, a little wider than need be where their shapes should be few."""
        max_length = int(lengths.max())
        room = round_up_length(max_length, self.max_length) if self.graphs else max_length
        return self.layout.make_prompt(source, lengths, width=room)

    def _noise_keys(
        self, source: Source, lengths: Tensor, *, seed: int, indices: Tensor, noises: int
    ) -> Tensor:
        """The keys (B·b₁·b₂,) of the candidates' noise; where a length comes again, its noise is new."""
        offsets = lengths - (~source.padding).sum(1, keepdim=True)  # (B, b₁)
        num_repeats = (lengths[:, :, None] == lengths[:, None, :]).tril(-1).sum(2)  # (B, b₁)
        numbers = num_repeats[:, :, None] * noises + torch.arange(noises)
        return make_key(seed, indices[:, None, None], offsets[:, :, None], numbers).flatten()

    def _group_by_sentence(self, canvas: Canvas, tokens: Tensor) -> list[TokenRows]:
        """The rows of each sentence's candidates."""
        rows, sentences = self.layout.extract_targets(canvas, tokens.cpu()), len(canvas.source.tokens)
        size = len(rows) // sentences
        return [rows[i * size : (i + 1) * size] for i in range(sentences)]

    def _round_to_tokens(self, canvas: Canvas, estimate: Estimate) -> tuple[Tensor, Tensor]:
        """The likeliest token at each place, or the given one, and its log-probability."""
        size = rows_per_chunk(estimate, len(self.forbidden))
        inner = canvas.frozen.flip(1).cumsum(1).flip(1) > 0  # before what is given a text cannot end
        parts = zip(*(each.split(size) for each in (estimate.z0, estimate.hidden, inner)), strict=True)
        best = [self._best_tokens(Estimate(z0, hidden), within) for z0, hidden, within in parts]
        tokens, scores = (torch.cat(each) for each in zip(*best, strict=True))
        return torch.where(canvas.frozen, canvas.tokens, tokens), scores

    def _best_tokens(self, estimate: Estimate, inner: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.denoiser.logits(estimate).float().masked_fill(self.forbidden, -torch.inf)
        logits[..., self.special] = logits[..., self.special].masked_fill(inner[..., None], -torch.inf)
        best = logits.max(-1)
        return best.indices, best.values - logits.logsumexp(-1)


def run_to_end(course: DecodingCoroutine) -> list[Candidates]:
    """The drafts at the end of a course, without a use for its pauses."""
    while True:
        try:
            next(course)
        except StopIteration as end:
            decoded: list[Candidates] = end.value
            return decoded


def _score_likelihood(
    likelihood_scorer: DenoisingLikelihood, prompt: PreparedBatch, canvas: Canvas, tokens: Tensor
) -> Tensor:
    """How likely the judge finds the texts (B·C, L) and their lengths, a token: (B·C,)."""
    text = ~canvas.padding
    written = replace(canvas, tokens=tokens, frozen=torch.zeros_like(text), scored=text)
    return (likelihood_scorer(prompt.encoded, written) + prompt.scores) / text.sum(1)


def _mark(device: torch.device) -> Callable[[], None]:
    """What waits until the device has done all that it was asked to do so far."""
    if device.type != "cuda":
        return lambda: None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event.synchronize
