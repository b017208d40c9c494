"""2D parallel decoding (Difformer, section 3.3): every sentence at b₁ lengths, each from b₂ noises.

All candidates of all sentences of a batch are denoised together and share their sentence's encoding:

    sources → encode → propose lengths → empty canvases → sample → round to tokens → candidates

The host waits for the device twice: for the lengths, and for the tokens. `stages` are the three parts
between, for a caller that works on several batches at once (`acceleration/overlap.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from noise2text.core.devices import copy_to_device
from noise2text.core.random import make_key
from noise2text.data.layouts.base import Canvas, Layout, Source
from noise2text.data.layouts.template import OPEN_TEMPLATE, Template
from noise2text.diffusion.classifier_guidance import ClassifierGuidance
from noise2text.diffusion.sampler import Guide, SampledStep, unguided
from noise2text.diffusion.solvers import strided_times
from noise2text.generation.candidates import (
    DecodedStep,
    Decoder,
    SentenceCandidates,
    SourceBatch,
    Stage,
    TokenRows,
)
from noise2text.generation.config import DiffusionGenerationConfig
from noise2text.generation.denoising_likelihood import DenoisingLikelihood
from noise2text.generation.runner import EAGER, Runner
from noise2text.nn.denoiser import Constraint, Denoiser, EncoderOutput, Estimate, rows_per_chunk

__all__ = ["EncodedBatch", "ParallelDecoder", "Prompt", "ProposeLengths", "Sampled", "TracedTokens"]

ProposeLengths = Callable[[EncoderOutput], tuple[Tensor, Tensor]]
"""The lengths (B, b₁) to try for each sentence, and their log-probabilities."""
Wait = Callable[[], None]
TracedTokens = tuple[float, Tensor, Tensor]
"""The time of a step, its noisy tokens and its clean tokens (B·C, L)."""


@dataclass(frozen=True)
class EncodedBatch:
    """A batch whose lengths are on their way to the host."""

    batch: SourceBatch
    source: Source
    device_source: Source
    indices: Tensor  # (B,)
    encoded: EncoderOutput
    lengths: Tensor  # (B, b₁)
    length_scores: Tensor  # (B, b₁)
    wait: Wait
    seed: int
    trace: bool


@dataclass(frozen=True)
class Prompt:
    """What sampling starts from: one row per candidate, except for the encoded sources."""

    encoded: EncoderOutput
    source: Source
    canvas: Canvas  # on the host
    keys: Tensor  # (B·b₁·b₂,)
    length_scores: Tensor  # (B·b₁·b₂,), log-probabilities of the lengths

    def device_canvas(self) -> Canvas:
        """The canvas on the device, where its source is already."""
        return replace(self.canvas, source=self.source).to(self.keys.device)


@dataclass(frozen=True)
class Sampled:
    """A batch whose tokens are on their way to the host."""

    sentences: int
    canvas: Canvas  # on the host
    tokens: Tensor  # (B·C, L)
    scores: Tensor  # (B·C,)
    steps: Sequence[TracedTokens]
    wait: Wait


@dataclass(frozen=True)
class ParallelDecoder(Decoder):
    """The parts of a diffusion model that decode all candidates at once."""

    denoiser: Denoiser
    schedule: nn.Module
    layout: Layout
    config: DiffusionGenerationConfig
    propose_lengths: ProposeLengths
    num_timesteps: int  # T, the resolution of time in training
    forbidden: Tensor  # (V,), True for tokens that are never written
    special: Tensor  # (S,), tokens that are no text
    max_source: int
    max_length: int  # of a target
    template: Template = OPEN_TEMPLATE
    runner: Runner = EAGER
    classifier_guidance: ClassifierGuidance | None = None
    likelihood_scorer: DenoisingLikelihood | None = None  # scores the texts instead of the last step

    def stages(self, *, seed: int, trace: bool = False) -> list[Stage]:
        """Propose lengths, denoise, collect: each waits for the device first and leaves it with work."""
        encode = partial(self._encode, seed=seed, trace=trace)
        return [torch.inference_mode()(stage) for stage in (encode, self._denoise, self._collect)]

    def _encode(self, batch: SourceBatch, *, seed: int, trace: bool) -> EncodedBatch:
        """Encode the sources and propose lengths."""
        device = self.forbidden.device
        source, indices = batch.to_tensors(self.layout, self.runner, self.max_source)
        device_source = source.to(device)
        encoded = self.runner.encode(self.denoiser, device_source)
        lengths, scores = self.propose_lengths(encoded)
        lengths, wait = _to_host(lengths)
        return EncodedBatch(
            batch, source, device_source, indices, encoded, lengths, scores, wait, seed, trace
        )

    def _denoise(self, encoded_batch: EncodedBatch) -> Sampled:
        """Sample from noise to the tokens of every candidate."""
        prompt = self.make_prompt(encoded_batch)
        canvas = prompt.device_canvas()
        steps: list[TracedTokens] = []
        on_step = partial(self._trace_step, canvas, steps) if encoded_batch.trace else None
        estimate = self.runner.sample(
            *self.sampler_inputs(prompt, canvas),
            solver=self.config.build_solver(encoded_batch.seed),
            guide=self.guide(canvas),
            on_step=on_step,
        )
        tokens, scores = self.round_to_tokens(canvas, estimate)  # (B·C, L)
        written = ~(canvas.padding | canvas.frozen)
        scores = (scores * written).sum(1) / written.sum(1) + prompt.length_scores
        return self.finish(encoded_batch, prompt, canvas, tokens, scores, steps)

    def make_prompt(self, encoded_batch: EncodedBatch) -> Prompt:
        """The empty canvas, the noise key and the length's score of every candidate."""
        encoded_batch.wait()
        noises, device = self.config.noise_beam, self.forbidden.device
        lengths = self.template.fit_lengths(encoded_batch.lengths, self.max_length)
        width = self.runner.pad_length(int(lengths.max()), self.max_length)
        repeated = lengths.repeat_interleave(noises, dim=1)
        empty = self.layout.make_prompt(encoded_batch.source, repeated, width=width)
        keys = _noise_keys(
            encoded_batch.source, lengths, encoded_batch.indices, seed=encoded_batch.seed, noises=noises
        )
        scores = encoded_batch.length_scores.repeat_interleave(noises, dim=1).flatten()
        return Prompt(
            encoded_batch.encoded,
            encoded_batch.device_source,
            self.layout.apply_template(empty, self.template),
            copy_to_device(keys, device),
            copy_to_device(scores, device),
        )

    def sampler_inputs(
        self, prompt: Prompt, canvas: Canvas, *, number: int = 0
    ) -> tuple[Denoiser, nn.Module, EncoderOutput, Constraint, Tensor, Tensor]:
        """What `sample` takes for these candidates; another number draws other noise."""
        config, keys = self.config, make_key(prompt.keys, number) if number else prompt.keys
        times = strided_times(config.steps, num_timesteps=self.num_timesteps, stop_early=config.stop_early)
        constraint = self.denoiser.constrain(canvas)
        return self.denoiser, self.schedule, prompt.encoded, constraint, keys, times

    def guide(self, canvas: Canvas) -> Guide:
        """Classifier guidance of the texts on this canvas, or none."""
        if self.classifier_guidance is None:
            return unguided
        return self.classifier_guidance.for_positions(self.layout.target_mask(canvas) & ~canvas.padding)

    def round_to_tokens(self, canvas: Canvas, estimate: Estimate) -> tuple[Tensor, Tensor]:
        """The likeliest token at each position, or the given one, and its log-probability; both (B·C, L)."""
        size = rows_per_chunk(estimate, len(self.forbidden))
        inner = canvas.frozen.flip(1).cumsum(1).flip(1) > 0  # before given tokens a text cannot end
        chunks = zip(*(each.split(size) for each in (estimate.z0, estimate.hidden, inner)), strict=True)
        best = [self._best_tokens(Estimate(z0, hidden), within) for z0, hidden, within in chunks]
        tokens, scores = (torch.cat(each) for each in zip(*best, strict=True))
        return torch.where(canvas.frozen, canvas.tokens, tokens), scores

    def _best_tokens(self, estimate: Estimate, inner: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.denoiser.logits(estimate).float().masked_fill(self.forbidden, -torch.inf)
        logits[..., self.special] = logits[..., self.special].masked_fill(inner[..., None], -torch.inf)
        best = logits.max(-1)
        return best.indices, best.values - logits.logsumexp(-1)

    def _trace_step(self, canvas: Canvas, steps: list[TracedTokens], step: SampledStep) -> None:
        clean = self.round_to_tokens(canvas, step.estimate)[0]
        steps.append((step.time, self.denoiser.embedding.nearest(step.z), clean))

    def finish(
        self,
        encoded_batch: EncodedBatch,
        prompt: Prompt,
        canvas: Canvas,
        tokens: Tensor,
        scores: Tensor,
        steps: Sequence[TracedTokens],
    ) -> Sampled:
        """Score the texts, if something else than sampling does, and send them to the host."""
        if self.likelihood_scorer:
            text = ~canvas.padding
            written = replace(canvas, tokens=tokens, frozen=torch.zeros_like(text), scored=text)
            likelihood = self.likelihood_scorer(prompt.encoded, written)
            scores = (likelihood + prompt.length_scores) / text.sum(1)  # per token
        (tokens, _), (scores, wait) = _to_host(tokens), _to_host(scores)
        return Sampled(len(encoded_batch.batch), prompt.canvas, tokens, scores, steps, wait)

    def _collect(self, sampled: Sampled) -> list[SentenceCandidates]:
        """The candidates of each sentence, as lists."""
        sampled.wait()
        group = partial(self._group_by_sentence, sampled.canvas)
        rows = group(sampled.tokens)
        steps = [(time, group(noisy.cpu()), group(clean.cpu())) for time, noisy, clean in sampled.steps]
        scores = sampled.scores.view(len(rows), -1).tolist()
        return [
            SentenceCandidates(
                rows[i], scores[i], [DecodedStep(time, noisy[i], clean[i]) for time, noisy, clean in steps]
            )
            for i in range(sampled.sentences)
        ]

    def _group_by_sentence(self, canvas: Canvas, tokens: Tensor) -> list[TokenRows]:
        """The token rows of each sentence's candidates."""
        rows, sentences = self.layout.extract_targets(canvas, tokens), len(canvas.source.tokens)
        size = len(rows) // sentences
        return [rows[i * size : (i + 1) * size] for i in range(sentences)]


def _noise_keys(source: Source, lengths: Tensor, indices: Tensor, *, seed: int, noises: int) -> Tensor:
    """The keys (B·b₁·b₂,) of the candidates' noise; a length that is tried again gets other noise."""
    offsets = lengths - (~source.padding).sum(1, keepdim=True)  # (B, b₁)
    repeats = (lengths[:, :, None] == lengths[:, None, :]).tril(-1).sum(2)  # (B, b₁)
    numbers = repeats[:, :, None] * noises + torch.arange(noises)
    return make_key(seed, indices[:, None, None], offsets[:, :, None], numbers).flatten()


def _to_host(tensor: Tensor) -> tuple[Tensor, Wait]:
    """The tensor on the host, which is there after waiting; the device is not waited for now."""
    if tensor.device.type != "cuda":
        return tensor.cpu(), _nothing
    copied = tensor.to("cpu", non_blocking=True)
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(tensor.device))
    return copied, event.synchronize


def _nothing() -> None:
    """Wait for nothing."""
