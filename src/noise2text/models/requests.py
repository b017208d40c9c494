"""Generation for several requests at once: texts, each with the seed and the settings of its request.

    requests → tokens → batches of similar lengths → decoders → candidates → selectors → outputs

Texts share a batch if their decoders do (`Decoder.sharing_key`), so requests may differ in seeds, steps,
candidates, lengths, given words and selection. `Model.generate` is the case of one request.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from noise2text.core.arguments import (
    parse_flag,
    parse_indices,
    parse_number,
    parse_whole_number,
    require_function,
    require_texts,
)
from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.alternatives import FLOOR, draw_enough_candidates, rank_alternatives
from noise2text.generation.decoder import Decoder, SentenceCandidates, SourceBatch, Stage, TokenTraceStep
from noise2text.generation.mixed_batches import BatchPart, join_stages
from noise2text.generation.selection import Candidate, Selector, compare_candidates, require_selector
from noise2text.models.output import GenerationOutput, TraceStep

if TYPE_CHECKING:
    from noise2text.models.base import Model

__all__ = ["BatchGroup", "BatchedRequests", "GenerationRequest", "OnStep", "OnTraceStep", "parse_request"]

OnStep = Callable[[float, list[str]], object]
"""Called after each denoising step with the time, from 1 to 0, and the texts so far."""

OnTraceStep = Callable[[Mapping[int, list[TraceStep]]], object]
"""Called after each denoising step of a batch with the step of each candidate of the texts that are in it.

The texts are named by their positions in the request.
"""


@dataclass(frozen=True)
class GenerationRequest:
    """Texts to generate from, and how; the fields are the arguments of `Model.generate`.

    `on_trace_step` is called after each denoising step with the steps of all candidates.

    >>> import noise2text
    >>> from noise2text.models.requests import GenerationRequest
    >>> model = noise2text.load("de-en", device="cpu", precision="float32")
    >>> requests = [
    ...     GenerationRequest(["Guten Morgen."], seed=1),
    ...     GenerationRequest(["Danke."], overrides={"length_beam": 2, "noise_beam": 1}),
    ... ]
    >>> [output.texts for output in model.generate_together(requests)]
    [['Good morning.'], ['Thank you.']]
    """

    texts: Sequence[str]
    seed: int = 0
    indices: Sequence[int] | None = None
    trace: bool = False
    selector: Selector | None = None
    n: int = 1
    floor: float = FLOOR
    on_step: OnStep | None = None
    on_trace_step: OnTraceStep | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)


_OTHER_WORDS = {"batch_size": "batch", "num_return_sequences": "n", "random_seed": "seed"}
"""What people call arguments of `generate`, and their names."""


def parse_request(
    texts: Any,
    *,
    seed: Any,
    indices: Any,
    trace: Any,
    selector: Any,
    n: Any,
    floor: Any,
    on_step: Any,
    overrides: Mapping[str, Any],
) -> GenerationRequest:
    """The request that these arguments of `generate` make; a Problem for one of a wrong type."""
    require_texts(texts, where="generate")
    for name in _OTHER_WORDS.keys() & overrides.keys():
        raise Problem(f"generate has no argument {name}; it is called {_OTHER_WORDS[name]}.")
    require_selector(selector)
    require_function(on_step, "on_step", where="generate")
    return GenerationRequest(
        texts,
        seed=parse_whole_number(seed, "seed", where="generate"),
        indices=None if indices is None else parse_indices(indices, where="generate"),
        trace=parse_flag(trace, "trace", where="generate"),
        selector=selector,
        n=parse_whole_number(n, "n", where="generate"),
        floor=parse_number(floor, "floor", where="generate"),
        on_step=on_step,
        overrides=overrides,
    )


@dataclass(frozen=True)
class _PreparedRequest:
    """A request with the parts that generate for it, and its output, which is filled in batch by batch."""

    request: GenerationRequest
    decoder: Decoder
    selector: Selector
    rows: Sequence[Sequence[int]]  # the tokens of its texts, truncated
    output: GenerationOutput
    part_key: Hashable  # equal for requests whose texts are one part of a batch

    def report(self, steps: Mapping[int, list[TraceStep]]) -> None:
        """Tell the callbacks of the request about a step of its texts at these positions."""
        for position, candidates in steps.items():
            self.output.texts[position] = candidates[0].text
        if self.request.on_step is not None:
            time = next(iter(steps.values()))[0].time
            self.request.on_step(time, list(self.output.texts))
        if self.request.on_trace_step is not None:
            self.request.on_trace_step(steps)


@dataclass(frozen=True)
class _Text:
    """A text that is not empty: its request, and its position there."""

    prepared: _PreparedRequest
    position: int
    source: str
    row: Sequence[int]  # its tokens, truncated
    index: int  # keys its noise


@dataclass(frozen=True)
class BatchGroup:
    """Batches whose texts may share the network, and the stages that decode them one after another."""

    batches: Sequence[Sequence[BatchPart]]
    inputs: Sequence[Any]  # what the first stage takes for each batch
    stages: Sequence[Stage]


class BatchedRequests:
    """The requests of one call of `Model.generate_together`, cut into batches, and their outputs."""

    def __init__(self, model: Model, requests: Sequence[GenerationRequest], *, batch: int) -> None:
        if batch < 1:
            raise Problem(f"The argument batch must be at least 1 sentence, not {batch}.")
        self.model, self.batch = model, batch
        self._decoders: dict[Any, Decoder] = {}  # equal configs share a decoder and a selector
        self._selectors: dict[Any, Selector] = {}
        self._prepared = [self._prepare(request) for request in requests]
        self._texts: list[_Text] = []  # those that are not empty; batches name them by their numbers here
        self.outputs = [prepared.output for prepared in self._prepared]  # which `select` fills in
        self._finished: set[int] = set()
        self._groups = self._group_texts()

    @property
    def num_texts(self) -> int:
        """The number of texts that are not empty."""
        return len(self._texts)

    @property
    def groups(self) -> list[BatchGroup]:
        """The texts that have no output yet, in batches; those of a group may share the network."""
        unfinished = [[number for number in group if number not in self._finished] for group in self._groups]
        return [self._cut_batches(numbers) for numbers in unfinished if numbers]

    def halve_batches(self) -> bool:
        """Make batches half as large, for a memory that does not suffice; False if they have one text."""
        if self.batch == 1:
            return False
        self.batch = min(self.batch, self.num_texts - len(self._finished)) // 2 or 1
        return True

    def _prepare(self, request: GenerationRequest) -> _PreparedRequest:
        """The request with its decoder, its selector and an empty output."""
        model, texts, indices = self.model, request.texts, request.indices
        if indices is not None and len(indices) != len(texts):
            raise Problem(f"Give one index for each of {len(texts)} texts in indices, not {len(indices)}.")
        config = apply_overrides(model.generation_config, request.overrides, origin="generate")
        config = draw_enough_candidates(config, request.overrides, n=request.n, floor=request.floor)
        if request.selector is None and config not in self._selectors:
            self._selectors[config] = model.build_selector(config)
        rows, decoder = model.tokenizer.encode(texts), self._find_decoder(request, config)
        return _PreparedRequest(
            request,
            decoder,
            request.selector or self._selectors[config],
            [row[: model.max_source] for row in rows],
            GenerationOutput.empty(len(texts), truncated=sum(len(row) > model.max_source for row in rows)),
            decoder.part_key(seed=request.seed, trace=request.trace),
        )

    def _find_decoder(self, request: GenerationRequest, config: Any) -> Decoder:
        """The decoder of a config; it reports its steps if the request has a callback for them."""
        is_watched = request.on_step is not None or request.on_trace_step is not None
        if (config, is_watched) not in self._decoders:
            decoder = self.model.build_decoder(config)
            if is_watched:
                decoder = decoder.with_on_step(self._report_step)
            self._decoders[config, is_watched] = decoder
        return self._decoders[config, is_watched]

    def _group_texts(self) -> list[list[int]]:
        """The texts that are not empty, in groups that may share batches."""
        groups: dict[Hashable, list[int]] = {}
        for prepared in self._prepared:
            request = prepared.request
            positions = [i for i, text in enumerate(request.texts) if prepared.rows[i] and text.strip()]
            if positions:
                key = prepared.decoder.sharing_key(seed=request.seed, trace=request.trace)
                numbers = range(len(self._texts), len(self._texts) + len(positions))
                groups.setdefault(key, []).extend(numbers)
                indices = range(len(request.texts)) if request.indices is None else request.indices
                self._texts += [
                    _Text(prepared, i, request.texts[i], prepared.rows[i], indices[i]) for i in positions
                ]
        return list(groups.values())

    def _cut_batches(self, numbers: Sequence[int]) -> BatchGroup:
        """A group of texts in batches of similar lengths."""
        order = sorted(numbers, key=lambda number: len(self._texts[number].row))
        chunks = [order[start : start + self.batch] for start in range(0, len(order), self.batch)]
        batches = [self._make_parts(chunk) for chunk in chunks]
        if len({self._texts[number].prepared.part_key for number in numbers}) > 1:
            return BatchGroup(batches, batches, join_stages())
        first = batches[0][0]
        stages = first.decoder.stages(trace=first.trace)
        return BatchGroup(batches, [part.batch for (part,) in batches], stages)

    def _make_parts(self, chunk: Sequence[int]) -> list[BatchPart]:
        """The texts of a batch, divided by decoder, by solver and by whether they are traced."""
        parts: dict[Hashable, list[int]] = {}
        for number in chunk:
            parts.setdefault(self._texts[number].prepared.part_key, []).append(number)
        return [
            BatchPart(
                self._texts[own[0]].prepared.decoder,
                SourceBatch(
                    [self._texts[number].row for number in own],
                    [self._texts[number].index for number in own],
                    [self._texts[number].prepared.request.seed for number in own],
                    own,
                ),
                self._texts[own[0]].prepared.request.trace,
            )
            for own in parts.values()
        ]

    def _report_step(self, batch: SourceBatch, steps: Sequence[TokenTraceStep]) -> None:
        """Tell each request of the batch about the steps of its texts."""
        own_steps: dict[int, tuple[_PreparedRequest, dict[int, list[TraceStep]]]] = {}
        for number, step in zip(batch.text_numbers, steps, strict=True):
            text = self._texts[number]
            _, found = own_steps.setdefault(id(text.prepared), (text.prepared, {}))
            found[text.position] = _decode_step(self.model.tokenizer, step)
        for prepared, found in own_steps.values():
            prepared.report(found)

    def select(self, parts: Sequence[BatchPart], decoded: Sequence[SentenceCandidates]) -> int:
        """Select among the candidates of a batch, and fill in the outputs; returns the number of texts."""
        numbers = [number for part in parts for number in part.batch.text_numbers]
        texts = [self._texts[number] for number in numbers]
        candidates = _decode_candidates(self.model.tokenizer, decoded, [text.source for text in texts])
        by_selector: dict[int, list[int]] = {}
        for i, text in enumerate(texts):
            by_selector.setdefault(id(text.prepared.selector), []).append(i)
        for own in by_selector.values():
            selector = texts[own[0]].prepared.selector
            best = selector.select_all([candidates[i] for i in own])
            for i, index in zip(own, best, strict=True):
                self._fill_in(texts[i], decoded[i], candidates[i], index)
        self._finished.update(numbers)
        return len(texts)

    def _fill_in(
        self, text: _Text, sentence: SentenceCandidates, candidates: Sequence[Candidate], best: int
    ) -> None:
        """Write the candidates of a text, and the selected one, into the output of its request."""
        request, output, i = text.prepared.request, text.prepared.output, text.position
        output.texts[i], output.chosen[i] = candidates[best].text, best
        output.scores[i], output.lengths[i] = sentence.scores, list(map(len, sentence.tokens))
        output.candidates[i] = [candidate.text for candidate in candidates]
        ranked = rank_alternatives(text.prepared.selector, candidates, best, n=request.n, floor=request.floor)
        output.alternatives[i] = [candidates[each].text for each in ranked]
        if request.trace:
            tokenizer = self.model.tokenizer
            output.traces[i] = _decode_trace(tokenizer, sentence, best)
            output.drafts[i] = _decode_drafts(tokenizer, sentence)
            output.utilities[i] = compare_candidates(text.prepared.selector, candidates)


def _decode_candidates(
    tokenizer: Tokenizer, decoded: Sequence[SentenceCandidates], sources: Sequence[str]
) -> list[list[Candidate]]:
    rows = [[tuple(row) for row in sentence.tokens] for sentence in decoded]
    different = list(dict.fromkeys(chain.from_iterable(rows)))  # candidates are often equal
    texts = dict(zip(different, tokenizer.decode(different), strict=True))
    return [
        [Candidate(texts[row], row, score, source) for row, score in zip(own, sentence.scores, strict=True)]
        for own, sentence, source in zip(rows, decoded, sources, strict=True)
    ]


def _decode_step(tokenizer: Tokenizer, step: TokenTraceStep) -> list[TraceStep]:
    """The step of each candidate as texts."""
    noisy, clean = tokenizer.decode(step.noisy), tokenizer.decode(step.clean)
    return [
        TraceStep(
            time=step.time,
            noisy=noisy[i],
            text=clean[i],
            noisy_tokens=tuple(tokenizer.split(step.noisy[i])),
            tokens=tuple(tokenizer.split(step.clean[i])),
            confidence=tuple(step.confidence[i]) if step.confidence else (),
        )
        for i in range(len(clean))
    ]


def _decode_trace(tokenizer: Tokenizer, sentence: SentenceCandidates, best: int) -> list[TraceStep]:
    """The steps of one candidate as texts."""
    return [
        trace_step
        for step in sentence.steps
        for trace_step in _decode_step(
            tokenizer,
            TokenTraceStep(
                step.time, [step.noisy[best]], [step.clean[best]], step.confidence[best : best + 1]
            ),
        )
    ]


def _decode_drafts(tokenizer: Tokenizer, sentence: SentenceCandidates) -> list[list[str]]:
    """The text of each candidate at every step."""
    decoded = [tokenizer.decode(step.clean) for step in sentence.steps]
    return [list(drafts) for drafts in zip(*decoded, strict=True)]
