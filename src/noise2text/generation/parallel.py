"""2D parallel decoding (Difformer, section 3.3): every sentence at b₁ lengths, each from b₂ noises.

All candidates of all sentences of a batch are denoised together and share their sentence's encoding:

    sources → encode → propose lengths → empty canvases → sample → round to tokens → candidates

The host waits for the device twice: for the lengths, and for the tokens. `stages` are the three parts
between, for a caller that works on several batches at once (`acceleration/overlap.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from noise2text.core.devices import copy_to_device
from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.layouts.base import Canvas, Layout, Source
from noise2text.data.layouts.template import Template
from noise2text.diffusion.classifier_guidance import ClassifierGuidance
from noise2text.diffusion.sampler import Guide, OnStep, Sample, SampledStep
from noise2text.diffusion.schedules import Schedule
from noise2text.diffusion.solvers import Solver
from noise2text.diffusion.stopping import StopWhenSure
from noise2text.generation.config import DiffusionGenerationConfig
from noise2text.generation.decoder import (
    Decoder,
    OnTokens,
    SentenceCandidates,
    SourceBatch,
    Stage,
)
from noise2text.generation.denoising_likelihood import DenoisingLikelihood
from noise2text.generation.executor import EAGER, Executor
from noise2text.generation.rounding import RoundedStep, Rounding
from noise2text.nn.denoiser import Denoiser, EncoderOutput, Estimate

__all__ = [
    "EncodedBatch",
    "ParallelDecoder",
    "ProposeLengths",
    "SampledBatch",
    "SamplerInputs",
    "copy_to_host",
]

ProposeLengths = Callable[[EncoderOutput], tuple[Tensor, Tensor]]
"""The lengths (B, b₁) to try for each sentence, and their log-probabilities."""


@dataclass(frozen=True)
class EncodedBatch:
    """A batch whose lengths are on their way to the host."""

    batch: SourceBatch
    source: Source
    device_source: Source
    seeds: Tensor  # (B,)
    indices: Tensor  # (B,)
    solver: Solver
    encoded: EncoderOutput
    lengths: Tensor  # (B, b₁)
    length_scores: Tensor  # (B, b₁)
    copied: torch.cuda.Event | None
    trace: bool


@dataclass(frozen=True)
class SamplerInputs:
    """What sampling starts from: one row per candidate, except for the encoded sources."""

    encoded: EncoderOutput
    canvas: Canvas  # empty, on the device
    host_canvas: Canvas  # the same, on the host
    noise_keys: Tensor  # (B·b₁·b₂,)
    length_scores: Tensor  # (B·b₁·b₂,), log-probabilities of the lengths


@dataclass(frozen=True)
class SampledBatch:
    """A batch whose tokens are on their way to the host."""

    sentences: int
    canvas: Canvas  # on the host
    tokens: Tensor  # (B·C, L)
    scores: Tensor  # (B·C,)
    steps: Sequence[RoundedStep]  # if traced
    copied: torch.cuda.Event | None


@dataclass(frozen=True)
class ParallelDecoder(Decoder):
    """The parts of a diffusion model that decode all candidates at once."""

    denoiser: Denoiser
    schedule: Schedule
    times: Tensor  # (K,), of the steps, from 1 downwards
    layout: Layout
    config: DiffusionGenerationConfig
    propose_lengths: ProposeLengths
    rounding: Rounding
    max_source: int
    max_length: int  # of a target
    template: Template | None = None
    executor: Executor = EAGER
    classifier_guidance: ClassifierGuidance | None = None
    likelihood_scorer: DenoisingLikelihood | None = None  # scores the texts instead of the last step
    on_step: OnTokens | None = None

    @property
    def device(self) -> torch.device:
        """The device that the network is on."""
        return self.rounding.forbidden_mask.device

    def with_on_step(self, on_step: OnTokens) -> ParallelDecoder:
        return replace(self, on_step=on_step)

    def stages(self, *, trace: bool = False) -> list[Stage]:
        """Propose lengths, denoise, collect: each waits for the device first and leaves it with work."""
        encode = partial(self._encode, trace=trace)
        return [torch.inference_mode()(stage) for stage in (encode, self._denoise, self.collect)]

    def sharing_key(self, *, seed: int, trace: bool) -> Hashable:
        is_guided = self.config.guide or self.config.guidance_weight
        own = super().sharing_key(seed=seed, trace=trace) if is_guided else self.config.network_settings()
        return self.config.build_solver(seed), own

    def _encode(self, batch: SourceBatch, *, trace: bool) -> EncodedBatch:
        """Encode the sources and propose lengths."""
        device = self.device
        source, seeds, indices = batch.to_tensors(self.layout, self.executor, self.max_source)
        device_source = source.to(device)
        encoded = self.executor.encode(self.denoiser, device_source)
        lengths, scores = self.propose_lengths(encoded)
        lengths, copied = copy_to_host(lengths)
        return EncodedBatch(
            batch,
            source,
            device_source,
            seeds,
            indices,
            self.build_solver(batch),
            encoded,
            lengths,
            scores,
            copied,
            trace,
        )

    def build_solver(self, batch: SourceBatch) -> Solver:
        """The solver of a batch, whose seeds must not need different ones."""
        solver, *others = {self.config.build_solver(seed) for seed in set(batch.row_seeds)}
        if others:
            raise Problem("These seeds choose different sampling steps: give all texts of a batch the same.")
        return solver

    def _denoise(self, encoded_batch: EncodedBatch) -> SampledBatch:
        """Sample from noise to the tokens of every candidate."""
        lengths = self.find_lengths(encoded_batch)
        inputs = self.make_sampler_inputs(encoded_batch, lengths, max_length=int(lengths.max()))
        canvas = inputs.canvas
        steps: list[RoundedStep] = []
        estimate = self.sample(
            self.denoiser,
            self.schedule,
            inputs.encoded,
            self.denoiser.constrain(canvas),
            inputs.noise_keys,
            self.times,
            solver=encoded_batch.solver,
            guide=self.guide(canvas),
            on_step=self.make_step_callback(encoded_batch, inputs, canvas, steps),
            stopping=self.make_stopping_rule(canvas),
        )
        return self.finish(encoded_batch, inputs, estimate, steps)

    def finish(
        self,
        encoded_batch: EncodedBatch,
        inputs: SamplerInputs,
        estimate: Estimate,
        steps: Sequence[RoundedStep],
    ) -> SampledBatch:
        """The last estimate, rounded to tokens and scored."""
        canvas = inputs.canvas
        tokens, scores = self.rounding(canvas, estimate)  # (B·C, L)
        written = ~(canvas.padding | canvas.frozen)
        scores = (scores * written).sum(1) / written.sum(1) + inputs.length_scores
        return self.score_and_send_to_host(encoded_batch, inputs, canvas, tokens, scores, steps)

    def find_lengths(self, encoded_batch: EncodedBatch) -> Tensor:
        """The lengths (B, b₁) that are tried, on the host, which waits for them."""
        if encoded_batch.copied is not None:
            encoded_batch.copied.synchronize()
        if self.template is None:
            return encoded_batch.lengths
        return self.template.fit_lengths(encoded_batch.lengths, self.max_length)

    def make_sampler_inputs(
        self, encoded_batch: EncodedBatch, lengths: Tensor, *, max_length: int
    ) -> SamplerInputs:
        """The canvas for texts up to `max_length`, and the noise key and length score of every candidate."""
        source = encoded_batch.source  # on the host, as the lengths are
        noises, device = self.config.noise_beam, self.device
        _, width = self.executor.padded_shape(len(lengths), max_length, self.max_length)
        canvas = self.layout.make_empty_canvas(source, lengths.repeat_interleave(noises, dim=1), width=width)
        if self.template is not None:
            canvas = self.layout.apply_template(canvas, self.template)
        noise_keys = _make_noise_keys(
            source, lengths, encoded_batch.seeds, encoded_batch.indices, noises=noises
        )
        scores = encoded_batch.length_scores.repeat_interleave(noises, dim=1).flatten()
        return SamplerInputs(
            encoded_batch.encoded,
            replace(canvas, source=encoded_batch.device_source).to(device),
            canvas,
            copy_to_device(noise_keys, device),
            copy_to_device(scores, device),
        )

    def guide(self, canvas: Canvas) -> Guide | None:
        """Classifier guidance of the texts on this canvas, or none."""
        if self.classifier_guidance is None:
            return None
        return self.classifier_guidance.for_positions(self.layout.target_mask(canvas) & ~canvas.padding)

    @property
    def sample(self) -> Sample:
        """The executor's `sample`, or the sampler that the config asks for."""
        return self.config.build_sampler() or self.executor.sample

    def make_stopping_rule(self, canvas: Canvas) -> StopWhenSure | None:
        """The stopping rule of the texts on this canvas, or none."""
        if self.config.stop_when_sure == 1:
            return None
        return StopWhenSure(
            partial(self.rounding, canvas),
            ~(canvas.padding | canvas.frozen),
            min_probability=self.config.stop_when_sure,
        )

    def make_step_callback(
        self,
        encoded_batch: EncodedBatch,
        inputs: SamplerInputs,
        canvas: Canvas,
        steps: list[RoundedStep],
    ) -> OnStep | None:
        """What is called after every step, for the trace and the caller's `on_step`; None for neither."""
        on_step, batch, host_canvas = self.on_step, encoded_batch.batch, inputs.host_canvas
        if not encoded_batch.trace and on_step is None:
            return None

        def observe(step: SampledStep) -> None:
            rounded = self.rounding.round_step(canvas, step)
            if encoded_batch.trace:
                steps.append(rounded)
            if on_step is not None:
                on_step(batch, rounded.split(self.layout, host_canvas)[: len(batch.rows)])

        return observe

    def score_and_send_to_host(
        self,
        encoded_batch: EncodedBatch,
        inputs: SamplerInputs,
        canvas: Canvas,
        tokens: Tensor,
        scores: Tensor,
        steps: Sequence[RoundedStep],
    ) -> SampledBatch:
        """Score the texts, if something else than sampling does, and send them to the host."""
        if self.likelihood_scorer:
            text = ~canvas.padding
            written = replace(canvas, tokens=tokens, frozen=torch.zeros_like(text), scored=text)
            likelihood = self.likelihood_scorer(inputs.encoded, written)
            scores = (likelihood + inputs.length_scores) / text.sum(1)  # per token
        (tokens, _), (scores, copied) = copy_to_host(tokens), copy_to_host(scores)
        return SampledBatch(len(encoded_batch.batch.rows), inputs.host_canvas, tokens, scores, steps, copied)

    def collect(self, sampled: SampledBatch) -> list[SentenceCandidates]:
        """The candidates of each sentence, as lists."""
        if sampled.copied is not None:
            sampled.copied.synchronize()
        rows = self.layout.extract_targets(sampled.canvas, sampled.tokens)
        steps = [step.split(self.layout, sampled.canvas) for step in sampled.steps]
        scores = sampled.scores.view(len(sampled.canvas.source.tokens), -1).tolist()  # (B, C)
        candidates = []
        for i, sentence_scores in enumerate(scores[: sampled.sentences]):
            own = slice(i * len(sentence_scores), (i + 1) * len(sentence_scores))
            candidates.append(SentenceCandidates(rows[own], sentence_scores, [step[i] for step in steps]))
        return candidates


def _make_noise_keys(
    source: Source, lengths: Tensor, seeds: Tensor, indices: Tensor, *, noises: int
) -> Tensor:
    """The keys (B·b₁·b₂,) of the candidates' noise; a length that is tried again gets other noise."""
    offsets = lengths - (~source.padding).sum(1, keepdim=True)  # (B, b₁)
    repeats = (lengths[:, :, None] == lengths[:, None, :]).tril(-1).sum(2)  # (B, b₁)
    numbers = repeats[:, :, None] * noises + torch.arange(noises)
    return make_key(seeds[:, None, None], indices[:, None, None], offsets[:, :, None], numbers).flatten()


def copy_to_host(tensor: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """The tensor on the host, and the event after which it is there; the device is not waited for now."""
    if tensor.device.type != "cuda":
        return tensor.cpu(), None
    copied = tensor.to("cpu", non_blocking=True)
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(tensor.device))
    return copied, event
