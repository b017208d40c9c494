"""Joint decoding: texts with different settings go through the network together.

    parts of a batch → encode all → lengths and canvases of each part → sample all → tokens of each part

A part is a `ParallelDecoder` and its sources. The parts may differ in candidates, lengths, given tokens and
scores. They share the network, the steps and the solver: `Decoder.sharing_key` says which decoders do. The
noise of a text is keyed by its own seed and index, so a text is the same as without the other parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from noise2text.data.layouts.base import Source
from noise2text.diffusion.sampler import OnStep, SampledStep
from noise2text.diffusion.stopping import StopWhenSure
from noise2text.generation.decoder import SentenceCandidates, SourceBatch, Stage
from noise2text.generation.parallel import (
    EncodedBatch,
    ParallelDecoder,
    SampledBatch,
    SamplerInputs,
    copy_to_host,
)
from noise2text.generation.rounding import RoundedStep
from noise2text.nn.denoiser import Constraint, EncoderOutput, Estimate

__all__ = ["BatchPart", "join_stages"]


@dataclass(frozen=True)
class BatchPart:
    """The sources of a batch that one decoder decodes, and whether their steps are wanted."""

    decoder: Any  # a `ParallelDecoder` if the batch has several parts
    batch: SourceBatch
    trace: bool = False


@dataclass(frozen=True)
class _EncodedParts:
    """The encoding of all sources, and the share of each part in it."""

    decoders: Sequence[ParallelDecoder]
    batches: Sequence[EncodedBatch]
    encoded: EncoderOutput


@dataclass(frozen=True)
class _SampledParts:
    decoders: Sequence[ParallelDecoder]
    batches: Sequence[SampledBatch]


def join_stages() -> list[Stage]:
    """The stages that decode lists of `BatchPart`s; the candidates come in the order of the parts."""
    return [torch.inference_mode()(stage) for stage in (_encode, _denoise, _collect)]


def _encode(parts: Sequence[BatchPart]) -> _EncodedParts:
    """Encode the sources of all parts at once, and propose the lengths of each part."""
    decoders: list[ParallelDecoder] = [part.decoder for part in parts]
    batches = [part.batch for part in parts]
    first = decoders[0]
    together = SourceBatch(
        [row for batch in batches for row in batch.rows],
        [index for batch in batches for index in batch.indices],
        [seed for batch in batches for seed in batch.row_seeds],
    )
    source, seeds, indices = together.to_tensors(first.layout, first.executor, first.max_source)
    device_source = source.to(first.device)
    encoded = first.executor.encode(first.denoiser, device_source)
    encoded_batches, start = [], 0
    for part, batch in zip(parts, batches, strict=True):
        decoder: ParallelDecoder = part.decoder
        end = start + len(batch.rows) if batch is not batches[-1] else len(indices)  # repeated rows: the last
        own = slice(start, end)
        lengths, scores = decoder.propose_lengths(encoded)
        lengths, copied = copy_to_host(lengths[own])
        encoded_batches.append(
            EncodedBatch(
                batch,
                Source(source.tokens[own], source.padding[own]),
                Source(device_source.tokens[own], device_source.padding[own]),
                seeds[own],
                indices[own],
                decoder.build_solver(batch),
                _select_sources(encoded, torch.arange(start, end)),
                lengths,
                scores[own],
                copied,
                part.trace,
            )
        )
        start = end
    return _EncodedParts(decoders, encoded_batches, encoded)


def _denoise(parts: _EncodedParts) -> _SampledParts:
    """Sample the candidates of all parts at once, and round those of each part to tokens."""
    first, pairs = parts.decoders[0], list(zip(parts.decoders, parts.batches, strict=True))
    lengths = [decoder.find_lengths(batch) for decoder, batch in pairs]
    max_length = max(int(each.max()) for each in lengths)
    inputs = [
        decoder.make_sampler_inputs(batch, own, max_length=max_length)
        for (decoder, batch), own in zip(pairs, lengths, strict=True)
    ]
    steps: list[list[RoundedStep]] = [[] for _ in pairs]
    callbacks = [
        decoder.make_step_callback(batch, own, own.canvas, own_steps)
        for (decoder, batch), own, own_steps in zip(pairs, inputs, steps, strict=True)
    ]
    sizes = [len(each.noise_keys) for each in inputs]
    encoded, constraint, noise_keys = _join_inputs(parts, inputs)
    estimate = first.sample(
        first.denoiser,
        first.schedule,
        encoded,
        constraint,
        noise_keys,
        first.times,
        solver=parts.batches[0].solver,
        on_step=_split_callback(callbacks, sizes),
        stopping=_join_stopping_rules(parts.decoders, inputs, len(noise_keys)),
    )
    finished = [
        decoder.finish(batch, own, own_estimate, own_steps)
        for (decoder, batch), own, own_estimate, own_steps in zip(
            pairs, inputs, _split_estimate(estimate, sizes), steps, strict=True
        )
    ]
    return _SampledParts(parts.decoders, finished)


def _collect(parts: _SampledParts) -> list[SentenceCandidates]:
    """The candidates of the sentences of all parts, part by part."""
    pairs = zip(parts.decoders, parts.batches, strict=True)
    return [each for decoder, batch in pairs for each in decoder.collect(batch)]


def _join_inputs(
    parts: _EncodedParts, inputs: Sequence[SamplerInputs]
) -> tuple[EncoderOutput, Constraint, Tensor]:
    """What all candidates are sampled from.

    Candidates of a sentence share its encoding, if all sentences have equally many. Otherwise there is one
    encoding per candidate, and an executor may repeat the last candidate.
    """
    constraints = [
        decoder.denoiser.constrain(each.canvas) for decoder, each in zip(parts.decoders, inputs, strict=True)
    ]
    names = ("given", "frozen", "padding")
    constraint = Constraint(*(torch.cat([getattr(each, name) for each in constraints]) for name in names))
    noise_keys = torch.cat([each.noise_keys for each in inputs])
    candidates = [
        len(each.noise_keys) // len(batch.indices) for batch, each in zip(parts.batches, inputs, strict=True)
    ]
    if len(set(candidates)) == 1:
        return parts.encoded, constraint, noise_keys
    sentences = torch.tensor([len(batch.indices) for batch in parts.batches])
    per_sentence = torch.tensor(candidates).repeat_interleave(sentences)
    owners = torch.arange(len(per_sentence)).repeat_interleave(per_sentence)  # the sentence of each row
    size, _ = parts.decoders[0].executor.padded_shape(len(owners), 1, 1)
    rows = torch.arange(size).clamp_max(len(owners) - 1).to(noise_keys.device)
    constraint = replace(constraint, **{name: getattr(constraint, name)[rows] for name in names})
    return _select_sources(parts.encoded, owners.to(rows.device)[rows]), constraint, noise_keys[rows]


def _join_stopping_rules(
    decoders: Sequence[ParallelDecoder], inputs: Sequence[SamplerInputs], rows: int
) -> StopWhenSure | None:
    """The stopping rule of all candidates, which round by the decoders of their parts; None for none."""
    rules = [decoder.make_stopping_rule(own.canvas) for decoder, own in zip(decoders, inputs, strict=True)]
    present = [rule for rule in rules if rule is not None]
    if not present:  # parts that share the network have the same rule
        return None
    sizes = [len(rule.written) for rule in present]
    index = torch.arange(rows, device=present[0].written.device).clamp_max(sum(sizes) - 1)  # repeated rows

    def round_to_tokens(estimate: Estimate) -> tuple[Tensor, Tensor]:
        pairs = zip(present, _split_estimate(estimate, sizes), strict=True)
        tokens, log_probs = zip(*(rule.round_to_tokens(own) for rule, own in pairs), strict=True)
        return torch.cat(tokens)[index], torch.cat(log_probs)[index]

    written = torch.cat([rule.written for rule in present])[index]
    return StopWhenSure(round_to_tokens, written, min_probability=present[0].min_probability)


def _select_sources(encoded: EncoderOutput, rows: Tensor) -> EncoderOutput:
    """The encodings of these sources; keys and values are empty if the source is on the canvas."""
    rows = rows.to(encoded.padding.device)
    states, keys, values = encoded.states, encoded.keys, encoded.values
    return EncoderOutput(
        states[rows] if states.numel() else states,
        encoded.padding[rows],
        keys[:, rows] if keys.numel() else keys,
        values[:, rows] if values.numel() else values,
    )


def _split_estimate(estimate: Estimate, sizes: Sequence[int]) -> list[Estimate]:
    """The estimate of each part; rows beyond the parts are repeated ones."""
    rows = sum(sizes)
    parts = (estimate.z0[:rows].split(list(sizes)), estimate.hidden[:rows].split(list(sizes)))
    return [Estimate(z0, hidden) for z0, hidden in zip(*parts, strict=True)]


def _split_callback(callbacks: Sequence[OnStep | None], sizes: Sequence[int]) -> OnStep | None:
    """A callback that gives each part its rows of a step, or None if no part has a callback."""
    if not any(callbacks):
        return None

    def observe(step: SampledStep) -> None:
        noisy = step.z[: sum(sizes)].split(list(sizes))
        estimates = _split_estimate(step.estimate, sizes)
        for callback, z, estimate in zip(callbacks, noisy, estimates, strict=True):
            if callback is not None:
                callback(SampledStep(step.time, z, estimate))

    return observe
