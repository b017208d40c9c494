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

from noise2text.core.devices import HostCopy, copy_to_device, copy_to_host
from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.layouts.base import Canvas, Layout
from noise2text.data.layouts.template import Template
from noise2text.diffusion.classifier_guidance import ClassifierGuidance
from noise2text.diffusion.running_rows import RunningRows
from noise2text.diffusion.sampler import Guide, OnStep, ReverseProcess, Sample, SampledStep
from noise2text.diffusion.schedules import Schedule
from noise2text.diffusion.solvers import Solver
from noise2text.diffusion.stopping import StopWhenSure
from noise2text.generation.config import DiffusionGenerationConfig
from noise2text.generation.decoder import (
    Decoder,
    OnTokens,
    SentenceCandidates,
    SourceBatch,
    SourceTensors,
    Stage,
)
from noise2text.generation.denoising_likelihood import DenoisingLikelihood
from noise2text.generation.executor import EAGER, Executor
from noise2text.generation.rounding import RoundedStep, Rounding
from noise2text.nn.denoiser import Denoiser, EncoderOutput, Estimate

__all__ = ["CandidateBatch", "EncodedBatch", "ParallelDecoder", "ProposeLengths", "SampledBatch"]

ProposeLengths = Callable[[EncoderOutput], tuple[Tensor, Tensor]]
"""The lengths (B, b₁) to try for each sentence, and their log-probabilities."""


@dataclass(frozen=True)
class EncodedBatch:
    """A batch whose sources are encoded, and the lengths to try."""

    batch: SourceBatch
    sources: SourceTensors
    encoded: EncoderOutput
    lengths: HostCopy  # (B, b₁)
    length_scores: Tensor  # (B, b₁), log-probabilities
    trace: bool


@dataclass(frozen=True)
class CandidateBatch:
    """What sampling starts from: one row per candidate, except for the encoded sources."""

    batch: SourceBatch
    encoded: EncoderOutput
    canvas: Canvas  # empty, on the device
    host_canvas: Canvas  # the same, on the host
    noise_keys: Tensor  # (B·C,), where C = b₁·b₂
    length_scores: Tensor  # (B·C,), log-probabilities
    steps: list[RoundedStep] | None  # sampling adds its steps here, if they are traced


@dataclass(frozen=True)
class SampledBatch:
    """The tokens of all candidates and their scores."""

    sentences: int
    canvas: Canvas  # on the host
    tokens: HostCopy  # (B·C, L)
    scores: HostCopy  # (B·C,)
    steps: Sequence[RoundedStep]  # if traced


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

    @property
    def sample(self) -> Sample:
        """`diffusion.sampler.sample`, its CUDA graph, or the sampler of the config."""
        return self.config.build_sampler() or self.executor.sample

    def with_on_step(self, on_step: OnTokens) -> ParallelDecoder:
        return replace(self, on_step=on_step)

    def stages(self, *, trace: bool = False) -> list[Stage]:
        """Propose lengths, denoise, collect: each waits for the device first and leaves it with work."""
        encode = partial(self._encode, trace=trace)
        return [torch.inference_mode()(stage) for stage in (encode, self._denoise, self.collect)]

    def sharing_key(self, *, seed: int, trace: bool) -> Hashable:
        needs_equal_steps = self.denoiser.needs_one_timestep
        return self.config.network_settings(), self.steps_key(seed) if needs_equal_steps else None

    def part_key(self, *, seed: int, trace: bool) -> Hashable:
        return id(self), trace, self.config.build_solver(seed)

    def steps_key(self, seed: int) -> Hashable:
        """What the coefficients of the sampling steps depend on."""
        config = self.config
        return config.steps, config.stop_early, config.sampling_noise_factor, config.build_solver(seed)

    def _encode(self, batch: SourceBatch, *, trace: bool) -> EncodedBatch:
        """Encode the sources and propose lengths."""
        sources = batch.to_tensors(self.layout, self.executor, max_source=self.max_source, device=self.device)
        encoded = self.executor.encode(self.denoiser, sources.device_source)
        lengths, scores = self.propose_lengths(encoded)
        return EncodedBatch(batch, sources, encoded, copy_to_host(lengths), scores, trace)

    def _denoise(self, encoded_batch: EncodedBatch) -> SampledBatch:
        """Sample from noise to the tokens of every candidate."""
        lengths = self.find_lengths(encoded_batch)
        candidates = self.make_candidates(encoded_batch, lengths, max_length=int(lengths.max()))
        process = self.leave_out_finished(self.make_process(candidates))
        estimate = self.sample(process, self.make_step_callback(candidates))
        return self.round_and_score(candidates, estimate)

    def find_lengths(self, encoded_batch: EncodedBatch) -> Tensor:
        """The lengths (B, b₁) that are tried, on the host, which waits for them."""
        lengths = encoded_batch.lengths.wait()
        return lengths if self.template is None else self.template.fit_lengths(lengths, self.max_length)

    def make_candidates(
        self, encoded_batch: EncodedBatch, lengths: Tensor, *, max_length: int
    ) -> CandidateBatch:
        """The empty candidates of these lengths, on a canvas for texts up to `max_length`."""
        sources, noises, device = encoded_batch.sources, self.config.noise_beam, self.device
        _, width = self.executor.padded_shape(len(lengths), max_length, self.max_length)
        canvas = self.layout.make_empty_canvas(
            sources.source, lengths.repeat_interleave(noises, dim=1), width=width
        )
        if self.template is not None:
            canvas = self.layout.apply_template(canvas, self.template)
        scores = encoded_batch.length_scores.repeat_interleave(noises, dim=1).flatten()
        return CandidateBatch(
            encoded_batch.batch,
            encoded_batch.encoded,
            replace(canvas, source=sources.device_source).to(device),
            canvas,
            copy_to_device(_make_noise_keys(sources, lengths, noises=noises), device),
            copy_to_device(scores, device),
            [] if encoded_batch.trace else None,
        )

    def make_process(self, candidates: CandidateBatch) -> ReverseProcess:
        """The process that the candidates are sampled from."""
        canvas = candidates.canvas
        guide: Guide | None = None
        stopping: StopWhenSure | None = None
        if self.classifier_guidance is not None:
            text = self.layout.target_mask(canvas) & ~canvas.padding
            guide = self.classifier_guidance.for_positions(text)
        if (sure := self.config.stop_when_sure) < 1:
            stopping = StopWhenSure(
                partial(self.rounding.round_rows, canvas), canvas.open_positions, min_probability=sure
            )
        return ReverseProcess(
            self.denoiser,
            self.schedule,
            candidates.encoded,
            self.denoiser.constrain(canvas),
            candidates.noise_keys,
            self.times,
            solver=self._build_solver(candidates.batch),
            guide=guide,
            stopping=stopping,
        )

    def leave_out_finished(self, process: ReverseProcess) -> ReverseProcess:
        """The process whose finished rows leave the network, where the rows of a batch may change."""
        if process.stopping is None or self.executor.needs_fixed_shapes:
            return process
        return replace(process, denoiser=RunningRows(process.denoiser, process.stopping))

    def _build_solver(self, batch: SourceBatch) -> Solver:
        """The solver of a batch, whose seeds must not need different ones."""
        solver, *others = {self.config.build_solver(seed) for seed in set(batch.row_seeds)}
        if others:
            raise Problem("These seeds choose different sampling steps: give all texts of a batch the same.")
        return solver

    def make_step_callback(self, candidates: CandidateBatch) -> OnStep | None:
        """What is called after every step, for the trace and the caller's `on_step`; None for neither."""
        steps, on_step, batch = candidates.steps, self.on_step, candidates.batch
        if steps is None and on_step is None:
            return None

        def observe(step: SampledStep) -> None:
            rounded = self.rounding.round_step(candidates.canvas, step)
            if steps is not None:
                steps.append(rounded)
            if on_step is not None:
                on_step(batch, rounded.split(self.layout, candidates.host_canvas)[: len(batch.rows)])

        return observe

    def round_and_score(self, candidates: CandidateBatch, estimate: Estimate) -> SampledBatch:
        """The tokens of the last estimate and their scores, on their way to the host."""
        tokens, log_probs = self.rounding(candidates.canvas, estimate)  # (B·C, L)
        open_positions = candidates.canvas.open_positions
        log_probs = (log_probs * open_positions).sum(1)
        return self.score(candidates, tokens, log_probs, open_positions.sum(1))

    def score(
        self, candidates: CandidateBatch, tokens: Tensor, log_probs: Tensor, counts: Tensor
    ) -> SampledBatch:
        """The tokens (B·C, L) and their scores per token, on their way to the host.

        The scores are those of the likelihood scorer, if there is one. Otherwise they come from the sums
        (B·C,) of the log-probabilities of the written tokens, and the `counts` of these.
        """
        if self.likelihood_scorer is None:
            scores = log_probs / counts + candidates.length_scores  # (B·C,)
        else:
            text = ~candidates.canvas.padding
            filled = replace(candidates.canvas, tokens=tokens, given=torch.zeros_like(text), scored=text)
            likelihood = self.likelihood_scorer(candidates.encoded, filled)
            scores = (likelihood + candidates.length_scores) / text.sum(1)
        return SampledBatch(
            len(candidates.batch.rows),
            candidates.host_canvas,
            copy_to_host(tokens),
            copy_to_host(scores),
            candidates.steps or (),
        )

    def collect(self, sampled: SampledBatch) -> list[SentenceCandidates]:
        """The candidates of each sentence, as lists."""
        rows = self.layout.extract_targets(sampled.canvas, sampled.tokens.wait())
        steps = [step.split(self.layout, sampled.canvas) for step in sampled.steps]
        scores = sampled.scores.wait().view(len(sampled.canvas.source.tokens), -1).tolist()  # (B, C)
        candidates = []
        for i, sentence_scores in enumerate(scores[: sampled.sentences]):
            own = slice(i * len(sentence_scores), (i + 1) * len(sentence_scores))
            candidates.append(SentenceCandidates(rows[own], sentence_scores, [step[i] for step in steps]))
        return candidates


def _make_noise_keys(sources: SourceTensors, lengths: Tensor, *, noises: int) -> Tensor:
    """The keys (B·b₁·b₂,) of the candidates' noise; a length that is tried again gets other noise."""
    offsets = lengths - (~sources.source.padding).sum(1, keepdim=True)  # (B, b₁)
    repeats = (lengths[:, :, None] == lengths[:, None, :]).tril(-1).sum(2)  # (B, b₁)
    numbers = repeats[:, :, None] * noises + torch.arange(noises)
    seeds, indices = sources.seeds[:, None, None], sources.indices[:, None, None]
    return make_key(seeds, indices, offsets[:, :, None], numbers).flatten()
