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

from noise2text.core.devices import copy_to_host
from noise2text.diffusion.sampler import OnStep, ReverseProcess, SampledStep
from noise2text.diffusion.stopping import StopWhenSure
from noise2text.generation.decoder import SentenceCandidates, SourceBatch, Stage
from noise2text.generation.parallel import CandidateBatch, EncodedBatch, ParallelDecoder, SampledBatch
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
    sources = together.to_tensors(
        first.layout, first.executor, max_source=first.max_source, device=first.device
    )
    encoded = first.executor.encode(first.denoiser, sources.device_source)
    encoded_batches, start = [], 0
    for part, decoder in zip(parts, decoders, strict=True):
        is_last = part is parts[-1]  # it has the repeated rows
        end = len(sources.indices) if is_last else start + len(part.batch.rows)
        own = slice(start, end)
        lengths, scores = decoder.propose_lengths(encoded)
        encoded_batches.append(
            EncodedBatch(
                part.batch,
                sources.select(own),
                _select_sources(encoded, torch.arange(start, end)),
                copy_to_host(lengths[own]),
                scores[own],
                part.trace,
            )
        )
        start = end
    return _EncodedParts(decoders, encoded_batches, encoded)


def _denoise(parts: _EncodedParts) -> _SampledParts:
    """Sample the candidates of all parts at once, and round those of each part to tokens."""
    pairs = list(zip(parts.decoders, parts.batches, strict=True))
    lengths = [decoder.find_lengths(batch) for decoder, batch in pairs]
    max_length = max(int(each.max()) for each in lengths)
    candidates = [
        decoder.make_candidates(batch, own, max_length=max_length)
        for (decoder, batch), own in zip(pairs, lengths, strict=True)
    ]
    owned = list(zip(parts.decoders, candidates, strict=True))
    sizes = [len(own.noise_keys) for own in candidates]
    callbacks = [decoder.make_step_callback(own) for decoder, own in owned]
    estimate = parts.decoders[0].sample(_join_processes(parts, candidates), _split_callback(callbacks, sizes))
    sampled = [
        decoder.send_to_host(own, *decoder.round_to_tokens(own, own_estimate))
        for (decoder, own), own_estimate in zip(owned, _split_estimate(estimate, sizes), strict=True)
    ]
    return _SampledParts(parts.decoders, sampled)


def _collect(parts: _SampledParts) -> list[SentenceCandidates]:
    """The candidates of the sentences of all parts, part by part."""
    pairs = zip(parts.decoders, parts.batches, strict=True)
    return [each for decoder, batch in pairs for each in decoder.collect(batch)]


def _join_processes(parts: _EncodedParts, candidates: Sequence[CandidateBatch]) -> ReverseProcess:
    """The process that all candidates are sampled from.

    Candidates of a sentence share its encoding, if all sentences have equally many. Otherwise there is one
    encoding per candidate, and an executor may repeat the last candidate.
    """
    processes = [decoder.make_process(own) for decoder, own in zip(parts.decoders, candidates, strict=True)]
    names = ("given", "frozen", "padding")
    constraint = Constraint(
        *(torch.cat([getattr(each.constraint, name) for each in processes]) for name in names)
    )
    noise_keys, encoded = torch.cat([each.noise_keys for each in processes]), parts.encoded
    sentences = [len(batch.sources.indices) for batch in parts.batches]
    per_sentence = [len(own.noise_keys) // count for own, count in zip(candidates, sentences, strict=True)]
    if len(set(per_sentence)) > 1:
        counts = torch.tensor(per_sentence).repeat_interleave(torch.tensor(sentences))
        owners = torch.arange(len(counts)).repeat_interleave(counts)  # the sentence of each row
        size, _ = parts.decoders[0].executor.padded_shape(len(owners), 1, 1)
        rows = torch.arange(size).clamp_max(len(owners) - 1).to(noise_keys.device)
        constraint = replace(constraint, **{name: getattr(constraint, name)[rows] for name in names})
        encoded, noise_keys = _select_sources(encoded, owners.to(rows.device)[rows]), noise_keys[rows]
    stopping = _join_stopping_rules([each.stopping for each in processes], len(noise_keys))
    return replace(
        processes[0], encoded=encoded, constraint=constraint, noise_keys=noise_keys, stopping=stopping
    )


def _join_stopping_rules(rules: Sequence[StopWhenSure | None], rows: int) -> StopWhenSure | None:
    """The stopping rule of all candidates, which round by the decoders of their parts; None for none."""
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
