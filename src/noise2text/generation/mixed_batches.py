"""Joint decoding: texts with different settings go through the network together.

    parts of a batch → encode all → lengths and canvases of each part → sample all → tokens of each part

A part is a `ParallelDecoder` and its sources. The parts may differ in candidates, lengths, given tokens,
sampling steps, classifier guidance and scores. They share the network: `Decoder.sharing_key` says which
decoders do. The noise of a text is keyed by its own seed and index, so a text is the same as without the
other parts. `mixed_steps.py` has how each part takes its own steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import torch

from noise2text.core.devices import copy_to_host
from noise2text.diffusion.sampler import ReverseProcess
from noise2text.generation.decoder import SentenceCandidates, SourceBatch, SourceTensors, Stage
from noise2text.generation.mixed_steps import PartSampling, mix_steps
from noise2text.generation.parallel import EncodedBatch, ParallelDecoder, SampledBatch
from noise2text.nn.denoiser import EncoderOutput

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
    batches, first = [part.batch for part in parts], decoders[0]
    together = SourceBatch(
        [row for batch in batches for row in batch.rows],
        [index for batch in batches for index in batch.indices],
        [seed for batch in batches for seed in batch.row_seeds],
    )
    sources = together.to_tensors(
        first.layout, first.executor, max_source=first.max_source, device=first.device
    )
    encoded = first.executor.encode(first.denoiser, sources.device_source)
    bounds = [0, *accumulate(len(batch.rows) for batch in batches)]
    bounds[-1] = len(sources.indices)  # the last part has the repeated rows
    shares = zip(parts, pairwise(bounds), strict=True)
    own = [_select_part(part, sources, encoded, start, end) for part, (start, end) in shares]
    return _EncodedParts(decoders, own, encoded)


def _select_part(
    part: BatchPart, sources: SourceTensors, encoded: EncoderOutput, start: int, end: int
) -> EncodedBatch:
    """The sources of a part, from row `start` to row `end` of all sources, and the lengths to try."""
    own = slice(start, end)
    lengths, scores = part.decoder.propose_lengths(encoded)
    return EncodedBatch(
        part.batch,
        sources.select(own),
        encoded.select(torch.arange(start, end)),
        copy_to_host(lengths[own]),
        scores[own],
        part.trace,
    )


def _denoise(parts: _EncodedParts) -> _SampledParts:
    """Sample the candidates of all parts at once, and round those of each part to tokens."""
    pairs = list(zip(parts.decoders, parts.batches, strict=True))
    lengths = [decoder.find_lengths(batch) for decoder, batch in pairs]
    max_length = max(int(each.max()) for each in lengths)
    candidates = [
        decoder.make_candidates(batch, part_lengths, max_length=max_length)
        for (decoder, batch), part_lengths in zip(pairs, lengths, strict=True)
    ]
    decoded = list(zip(parts.decoders, candidates, strict=True))
    processes = [decoder.make_process(each) for decoder, each in decoded]
    sampling = PartSampling(processes, [decoder.make_step_callback(each) for decoder, each in decoded])
    process, first = _join_processes(parts, processes), parts.decoders[0]
    if sampling.may_finish_early:
        process = first.leave_out_finished(replace(process, stopping=sampling))
    estimate = first.sample(process, sampling.observe if sampling.is_observed else None)
    sampled = [
        decoder.round_and_score(each, part_estimate)
        for (decoder, each), part_estimate in zip(decoded, sampling.split(estimate), strict=True)
    ]
    return _SampledParts(parts.decoders, sampled)


def _collect(parts: _SampledParts) -> list[SentenceCandidates]:
    """The candidates of the sentences of all parts, part by part."""
    pairs = zip(parts.decoders, parts.batches, strict=True)
    return [each for decoder, batch in pairs for each in decoder.collect(batch)]


def _join_processes(parts: _EncodedParts, processes: Sequence[ReverseProcess]) -> ReverseProcess:
    """The process that all candidates are sampled from, without a stopping rule.

    Candidates of a sentence share its encoding, if all sentences have equally many. Otherwise there is one
    encoding per candidate, and an executor may repeat the last candidate.
    """
    constraint = processes[0].constraint.join([each.constraint for each in processes])
    noise_keys, encoded = torch.cat([each.noise_keys for each in processes]), parts.encoded
    sentences = [len(batch.sources.indices) for batch in parts.batches]
    per_sentence = [len(each.noise_keys) // count for each, count in zip(processes, sentences, strict=True)]
    if len(set(per_sentence)) > 1:
        counts = torch.tensor(per_sentence).repeat_interleave(torch.tensor(sentences))
        owners = torch.arange(len(counts)).repeat_interleave(counts)  # the sentence of each row
        size, _ = parts.decoders[0].executor.padded_shape(len(owners), 1, 1)
        rows = torch.arange(size).clamp_max(len(owners) - 1).to(noise_keys.device)
        constraint, noise_keys = constraint.select(rows), noise_keys[rows]
        encoded = encoded.select(owners.to(rows.device)[rows])
    joined = replace(
        processes[0], encoded=encoded, constraint=constraint, noise_keys=noise_keys, stopping=None
    )
    seeds = [batch.batch.row_seeds[0] for batch in parts.batches]  # the others choose the same steps
    keys = [decoder.steps_key(seed) for decoder, seed in zip(parts.decoders, seeds, strict=True)]
    return mix_steps(joined, processes, keys)
