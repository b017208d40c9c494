"""The outputs of a text's segments as one output.

The k-th candidate of the text joins the k-th of every segment, the selected one first and then by score;
where a segment has fewer, its last one stands in. So the first candidate is the text, and it is the chosen
one. Scores are means weighted by tokens; steps are joined step by step. A text of one segment keeps its
candidates in their order, and all that belongs to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from noise2text.core.config import apply_overrides
from noise2text.models.output import GenerationOutput, TraceStep
from noise2text.models.requests import GenerationRequest, OnStep, OnTraceStep
from noise2text.preprocessing.preprocessor import PreprocessedText, Segment, build_preprocessor
from noise2text.preprocessing.restoration import restore_tokens

if TYPE_CHECKING:
    from noise2text.models.base import Model

__all__ = ["PreprocessedRequest", "join_outputs", "preprocess_request"]

T = TypeVar("T")


@dataclass(frozen=True)
class PreprocessedRequest:
    """A request whose texts are the segments of another's; `texts` is None if it is that request itself."""

    request: GenerationRequest
    texts: Sequence[PreprocessedText] | None = None

    def join(self, output: GenerationOutput) -> GenerationOutput:
        """The output of the request that was preprocessed, from the output of this one."""
        return output if self.texts is None else join_outputs(self.texts, output)


def preprocess_request(model: Model, request: GenerationRequest) -> PreprocessedRequest:
    """The request with the segments of its texts, if its generation config preprocesses texts."""
    config = apply_overrides(model.generation_config, request.overrides, origin="generate")
    preprocessor = build_preprocessor(config, model.tokenizer, model.max_source)
    indices = range(len(request.texts)) if request.indices is None else request.indices
    if preprocessor is None or len(indices) != len(request.texts):  # which is refused where batches are made
        return PreprocessedRequest(request)
    texts = [preprocessor(text) for text in request.texts]
    segments = replace(
        request,
        texts=[segment.source for text in texts for segment in text.segments],
        indices=[index for index, text in zip(indices, texts, strict=True) for _ in text.segments],
        on_step=request.on_step and partial(_report_joined, texts, request.on_step),
        on_trace_step=request.on_trace_step and _TraceJoiner(texts, request.on_trace_step),
    )
    return PreprocessedRequest(segments, texts)


def join_outputs(preprocessed: Sequence[PreprocessedText], output: GenerationOutput) -> GenerationOutput:
    """The output of every text, from the output that has one entry per segment."""
    joined, start = GenerationOutput(truncated=output.truncated), 0
    for text in preprocessed:
        end = start + len(text.segments)
        _append_joined(joined, text, output, range(start, end))
        start = end
    return joined


class _TraceJoiner:
    """Reports the steps of segments as steps of their texts: of each segment the last one so far."""

    def __init__(self, preprocessed: Sequence[PreprocessedText], on_trace_step: OnTraceStep) -> None:
        self.preprocessed, self.on_trace_step = preprocessed, on_trace_step
        self.latest: dict[int, list[TraceStep]] = {}
        self.owners = [number for number, text in enumerate(preprocessed) for _ in text.segments]

    def __call__(self, steps: Mapping[int, list[TraceStep]]) -> object:
        self.latest.update(steps)
        return self.on_trace_step({text: self._join(text) for text in {self.owners[at] for at in steps}})

    def _join(self, text: int) -> list[TraceStep]:
        """The step of each candidate of a text, without the segments that have not begun."""
        first = self.owners.index(text)
        begun = [
            (segment, self.latest[at])
            for at, segment in enumerate(self.preprocessed[text].segments, first)
            if at in self.latest
        ]
        segments, steps = zip(*begun, strict=True)
        return [_join_step(segments, row) for row in zip(*steps, strict=False)]


def _report_joined(
    preprocessed: Sequence[PreprocessedText], on_step: OnStep, time: float, outputs: list[str]
) -> object:
    waiting = iter(outputs)
    texts = []
    for text in preprocessed:
        own = [(segment, next(waiting)) for segment in text.segments]
        texts.append("".join(segment.restore(output) for segment, output in own if output) or text.fixed)
    return on_step(time, texts)


def _append_joined(
    joined: GenerationOutput, text: PreprocessedText, output: GenerationOutput, own: Sequence[int]
) -> None:
    """Append the entry of one text, whose segments are at `own` in the output."""
    segments = text.segments
    if len(segments) == 1 and segments[0].is_plain:
        joined.append_from(output, own[0])
        joined.warnings[-1] = list(text.warnings)
        return
    orders = [_order_candidates(output, at, alone=len(own) == 1) for at in own]
    count = max(map(len, orders), default=0)
    rows = [[order[min(k, len(order) - 1)] for order in orders] for k in range(count) if all(orders)]
    lengths = [[output.lengths[at][k] for at, k in zip(own, row, strict=True)] for row in rows]
    scores = [[output.scores[at][k] for at, k in zip(own, row, strict=True)] for row in rows]
    joined.texts.append(_join(segments, [output.texts[at] for at in own]) or text.fixed)
    joined.candidates.append(
        [_join(segments, [output.candidates[at][k] for at, k in zip(own, row, strict=True)]) for row in rows]
    )
    joined.lengths.append([sum(each) for each in lengths])
    joined.scores.append([_weighted_mean(*each) for each in zip(scores, lengths, strict=True)])
    joined.chosen.append((output.chosen[own[0]] if len(own) == 1 else 0) if rows else None)
    joined.traces.append(_join_traces(segments, [output.traces[at] for at in own]))
    joined.drafts.append(_join_drafts(segments, rows, [output.drafts[at] for at in own]))
    joined.utilities.append(output.utilities[own[0]] if len(own) == 1 else [])
    joined.alternatives.append(_join_alternatives(segments, [output.alternatives[at] for at in own]))
    joined.warnings.append(list(text.warnings))


def _order_candidates(output: GenerationOutput, at: int, *, alone: bool) -> list[int]:
    indices, chosen = list(range(len(output.candidates[at]))), output.chosen[at]
    return indices if alone else sorted(indices, key=lambda k: (k != chosen, -output.scores[at][k]))


def _join(segments: Sequence[Segment], outputs: Sequence[str]) -> str:
    return "".join(segment.restore(output) for segment, output in zip(segments, outputs, strict=True))


def _weighted_mean(scores: Sequence[float], lengths: Sequence[int]) -> float:
    if len(scores) == 1:
        return scores[0]
    total = sum(lengths)
    weights = [length / total if total else 1 / len(lengths) for length in lengths]
    return sum(score * weight for score, weight in zip(scores, weights, strict=True))


def _join_traces(segments: Sequence[Segment], traces: Sequence[list[TraceStep]]) -> list[TraceStep]:
    """The steps of the whole text; all segments take the same number of steps, or the last one stays."""
    count = max(map(len, traces), default=0)
    if not all(traces):
        return []
    return [_join_step(segments, [trace[min(k, len(trace) - 1)] for trace in traces]) for k in range(count)]


def _join_step(segments: Sequence[Segment], steps: Sequence[TraceStep]) -> TraceStep:
    pairs = list(zip(segments, steps, strict=True))
    knows_confidence = all(len(step.confidence) == len(step.tokens) for step in steps)
    confidence = chain.from_iterable(
        _surround(segment, list(step.confidence), 1.0, 1.0) for segment, step in pairs
    )
    return TraceStep(
        time=steps[0].time,
        noisy=_join(segments, [step.noisy for step in steps]),
        text=_join(segments, [step.text for step in steps]),
        noisy_tokens=tuple(
            chain.from_iterable(_restore(segment, step.noisy_tokens) for segment, step in pairs)
        ),
        tokens=tuple(chain.from_iterable(_restore(segment, step.tokens) for segment, step in pairs)),
        confidence=tuple(confidence) if knows_confidence else (),
    )


def _restore(segment: Segment, tokens: Sequence[str]) -> list[str]:
    restored = restore_tokens(tokens, segment.restorations)
    return _surround(segment, restored, segment.before, segment.after)


def _surround(segment: Segment, values: list[T], before: T, after: T) -> list[T]:
    """The values, with one more for each text around the segment."""
    return [*([before] if segment.before else []), *values, *([after] if segment.after else [])]


def _join_drafts(
    segments: Sequence[Segment], rows: Sequence[Sequence[int]], drafts: Sequence[list[list[str]]]
) -> list[list[str]]:
    """The text of each candidate of the whole text at every step."""
    if not all(drafts):
        return []
    joined = []
    for row in rows:
        own = [each[k] for each, k in zip(drafts, row, strict=True)]
        count = max(map(len, own))
        joined.append([_join(segments, [each[min(k, len(each) - 1)] for each in own]) for k in range(count)])
    return joined


def _join_alternatives(segments: Sequence[Segment], alternatives: Sequence[list[str]]) -> list[str]:
    """The k-th alternatives of all segments joined, without repetitions."""
    if not all(alternatives):
        return []
    count = max(map(len, alternatives), default=0)
    rows = ([each[min(k, len(each) - 1)] for each in alternatives] for k in range(count))
    return list(dict.fromkeys(_join(segments, row) for row in rows))
