"""Systems: what every trained model can do, whatever it is made of.

A system turns texts into texts. It packs them by length, decodes each batch into drafts, lets a selector
pick, and answers in the order of the input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Self

import torch
from torch import Tensor, nn

from noise2text.acceleration.cuda_graphs import GraphCache, round_up_batch, round_up_length
from noise2text.acceleration.int8 import Int8Linear, quantize_if_asked
from noise2text.core.config import apply_overrides
from noise2text.core.devices import find_dtype
from noise2text.core.errors import Problem
from noise2text.data.layouts.canvas import Layout, Source
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.parallel import Candidates, DecodingCoroutine
from noise2text.generation.selection import MBR, BestScore, Candidate, Selector

__all__ = [
    "SELECTORS",
    "GenerationOutput",
    "Model",
    "TraceStep",
    "build_mbr",
    "device_guard",
    "require_lists",
]


@dataclass(frozen=True)
class TraceStep:
    """A stop on the way to a text: the time, the noisy canvas and the clean estimate as text."""

    time: float
    noisy: str
    text: str


@dataclass
class GenerationOutput:
    """What came out, in the order of the input."""

    texts: list[str] = field(default_factory=list)
    candidates: list[list[str]] = field(default_factory=list)
    scores: list[list[float]] = field(default_factory=list)
    traces: list[list[TraceStep]] = field(default_factory=list)  # the steps to each text, if asked for
    truncated: int = 0  # how many inputs were too long and were cut


class Model(nn.Module, ABC):
    """A trained model with its tokenizer and its way to generate."""

    tokenizer: Tokenizer
    layout: Layout
    generation_config: Any  # the generation settings of this family, a frozen dataclass
    max_source: int

    def __init__(self) -> None:
        super().__init__()
        self.graphs: GraphCache | None = (
            GraphCache()
        )  # what was recorded of this system; none records nothing

    @property
    def device(self) -> torch.device:
        """Where the weights are, or what else it keeps; the CPU if there is nothing."""
        return next(chain(self.parameters(), self.buffers()), torch.empty(0)).device

    @property
    def quantizable_module(self) -> nn.Module | None:
        """The part whose small errors its own later steps mend; none if there is no such part."""
        return None

    def precision(self, requested_precision: str) -> str:
        """What is asked for, but float32 for `auto` where rounding would spoil this system's answers."""
        return requested_precision

    def move_to(self, device: torch.device, precision: str) -> Self:
        """This system on the device, with weights of the precision; what became int8 stays so."""
        precision = self.precision(precision)
        if device.type != "cpu" and any(isinstance(module, Int8Linear) for module in self.modules()):
            raise Problem(f"This model was rounded to int8 for a CPU; load it again for {device}.")
        own = self.to(device, dtype=find_dtype(precision, device))
        quantize_if_asked(own.quantizable_module, precision, device)
        return own

    def ensure_eval(self) -> None:
        """Leave training in all parts: an objective puts those that it trains into it, but not the system."""
        if self.training or any(part.training for part in self.children()):
            self.eval()

    @abstractmethod
    def decode_batch(
        self,
        rows: Sequence[Sequence[int]],
        generation_config: Any,
        *,
        seed: int,
        indices: Sequence[int],
        trace: bool,
    ) -> list[Candidates]:
        """The candidates of a batch of sources."""

    def course(
        self,
        rows: Sequence[Sequence[int]],
        generation_config: Any,
        *,
        seed: int,
        indices: Sequence[int],
        trace: bool,
    ) -> DecodingCoroutine:
        """The same, with pauses in which the device works on its own, if it can."""
        yield from ()
        return self.decode_batch(rows, generation_config, seed=seed, indices=indices, trace=trace)

    @abstractmethod
    def selector(self, generation_config: Any) -> Selector:
        """What picks one of a sentence's candidates."""

    def usable_graphs(self) -> GraphCache | None:
        """The recorded steps, on a GPU; under autocast the weights may be elsewhere at the next call."""
        return self.graphs if self.device.type == "cuda" and not torch.is_autocast_enabled() else None

    def make_source_batch(
        self, rows: Sequence[Sequence[int]], indices: Sequence[int], *, pad_to_bucket: bool
    ) -> tuple[Source, Tensor]:
        """A batch's sources and places; in `pad_to_bucket` sizes, the last sentence standing in for missing ones."""
        max_length = max(map(len, rows))
        if pad_to_bucket:
            more = round_up_batch(len(rows)) - len(rows)
            rows, indices = [*rows, *[rows[-1]] * more], [*indices, *[indices[-1]] * more]
            max_length = round_up_length(max_length, self.max_source)
        return self.layout.make_source(RaggedRows.from_lists(rows), width=max_length), torch.tensor(indices)

    def generate(
        self,
        texts: Sequence[str],
        *,
        seed: int = 0,
        batch: int = 32,
        indices: Sequence[int] | None = None,
        trace: bool = False,
        selector: Selector | None = None,
        **overrides: Any,
    ) -> GenerationOutput:
        """A text for each text; `settings` change this system's generation settings by name.

        The noise of a text depends on the seed and its place in the input (its index, unless `indices` says
        otherwise), not on the batch. An empty text, or one of spaces, gives an empty text. A `selector` takes
        the place of the one that the settings name.
        """
        require_lists("generate", texts)
        if batch < 1:
            raise Problem(f"The batch must hold at least 1 sentence, not {batch}.")
        if indices is not None and len(indices) != len(texts):
            raise Problem(f"generate takes a place for each of {len(texts)} texts, not {len(indices)}.")
        self.ensure_eval()
        with device_guard(self.device):
            return self._generate(texts, overrides, seed, batch, indices, trace, selector)

    def _generate(
        self,
        texts: Sequence[str],
        overrides: dict[str, Any],
        seed: int,
        batch: int,
        indices: Sequence[int] | None,
        trace: bool,
        selector: Selector | None,
    ) -> GenerationOutput:
        generation_config = apply_overrides(self.generation_config, overrides, origin="generate")
        indices = range(len(texts)) if indices is None else indices
        select = selector or self.selector(generation_config)
        rows = self.tokenizer.encode(texts)
        count = len(texts)
        result = GenerationOutput([""] * count, [[] for _ in rows], [[] for _ in rows], [[] for _ in rows])
        result.truncated = sum(len(row) > self.max_source for row in rows)
        rows = [row[: self.max_source] for row in rows]
        asked = (i for i, row in enumerate(rows) if row and texts[i].strip())
        order = sorted(asked, key=lambda i: len(rows[i]))
        courses: list[tuple[list[int], DecodingCoroutine]] = []  # those begun, the last first
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            own = [rows[i] for i in chosen], [indices[i] for i in chosen]
            courses.insert(
                0, (chosen, self.course(own[0], generation_config, seed=seed, indices=own[1], trace=trace))
            )
            courses = [
                (c, course) for c, course in courses if not self._go_on(result, texts, c, course, select)
            ]
        while courses:
            courses = [
                (c, course) for c, course in courses if not self._go_on(result, texts, c, course, select)
            ]
        return result

    def generate_pairs(
        self,
        count: int,
        *,
        source: str = "",
        target: str = "",
        seed: int = 0,
        batch: int = 32,
        **overrides: Any,
    ) -> list[tuple[str, str]]:
        """So many pairs of source and target, both written by the model; templates say what is given."""
        raise Problem("This system writes targets, not sources; a model of pairs, such as diffusion-lm, can.")

    def _go_on(
        self,
        result: GenerationOutput,
        sources: Sequence[str],
        chosen: Sequence[int],
        course: DecodingCoroutine,
        select: Selector,
    ) -> bool:
        """Whether the course has come to its end; if so, the chosen texts have been put where they belong."""
        try:
            next(course)
        except StopIteration as end:
            decoded: list[Candidates] = end.value
        else:
            return False
        candidates = self._decode_texts(decoded, [sources[i] for i in chosen])
        best = select.select_all(candidates)
        for i, sentence, own, best_index in zip(chosen, decoded, candidates, best, strict=True):
            self._store(result, i, sentence, own, best_index)
        return True

    def _decode_texts(self, decoded: Sequence[Candidates], sources: Sequence[str]) -> list[list[Candidate]]:
        texts = iter(self.tokenizer.decode([row for sentence in decoded for row in sentence.tokens]))
        return [
            [
                Candidate(text=next(texts), tokens=tuple(row), score=score, source=source)
                for row, score in zip(sentence.tokens, sentence.scores, strict=True)
            ]
            for sentence, source in zip(decoded, sources, strict=True)
        ]

    def _store(
        self,
        result: GenerationOutput,
        i: int,
        sentence: Candidates,
        candidates: Sequence[Candidate],
        best: int,
    ) -> None:
        texts = [candidate.text for candidate in candidates]
        result.texts[i], result.candidates[i], result.scores[i] = texts[best], texts, sentence.scores
        if not sentence.steps:
            return
        noisy = self.tokenizer.decode([step.noisy[best] for step in sentence.steps])
        clean = self.tokenizer.decode([step.clean[best] for step in sentence.steps])
        result.traces[i] = [
            TraceStep(step.time, *shown) for step, *shown in zip(sentence.steps, noisy, clean, strict=True)
        ]


def device_guard(device: torch.device) -> AbstractContextManager[Any]:
    """Within, events, streams and kernels are this device's, also where it is not the first GPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def require_lists(name: str, *lists: Sequence[str]) -> None:
    """Refuse lists that do not pair up, and a text in place of a list: it would be taken for its letters."""
    if any(isinstance(texts, str) for texts in lists):
        raise Problem(f"{name} takes a list of texts; put the one text into a list.")
    if len(set(map(len, lists))) > 1:
        counts = " and ".join(str(len(texts)) for texts in lists)
        raise Problem(f"{name} takes lists that pair up, not {counts} texts.")


def build_mbr(generation_config: Any) -> MBR:
    """Minimum Bayes risk, as the settings have it."""
    return MBR(
        utility=generation_config.utility,
        candidate_is=generation_config.candidate_is,
        self_pair=generation_config.self_pair,
    )


SELECTORS: dict[str, Callable[[Any], Selector]] = {
    "mbr": build_mbr,
    "score": lambda generation_config: BestScore(),
}
"""Selectors by the setting `select`."""
