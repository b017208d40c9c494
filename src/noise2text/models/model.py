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

from noise2text.acceleration.cuda_graphs import Captures, batch_size, width
from noise2text.acceleration.int8 import Int8Linear, round_weights
from noise2text.core.config import change
from noise2text.core.devices import find_dtype
from noise2text.core.errors import Problem
from noise2text.data.layouts.canvas import Layout, Source
from noise2text.data.ragged import Rows
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.parallel import Course, Draft
from noise2text.generation.selection import MBR, BestScore, Candidate, Selector

__all__ = ["SELECTORS", "Generated", "Stop", "System", "current", "mbr", "require_lists"]


@dataclass(frozen=True)
class Stop:
    """A stop on the way to a text: the time, the noisy canvas and the clean estimate as text."""

    time: float
    noisy: str
    text: str


@dataclass
class Generated:
    """What came out, in the order of the input."""

    texts: list[str] = field(default_factory=list)
    candidates: list[list[str]] = field(default_factory=list)
    scores: list[list[float]] = field(default_factory=list)
    traces: list[list[Stop]] = field(default_factory=list)  # the steps to each text, if asked for
    truncated: int = 0  # how many inputs were too long and were cut


class System(nn.Module, ABC):
    """A trained model with its tokenizer and its way to generate."""

    tokenizer: Tokenizer
    layout: Layout
    how: Any  # the generation settings of this family, a frozen dataclass
    max_source: int

    def __init__(self) -> None:
        super().__init__()
        self.captures: Captures | None = Captures()  # what was recorded of this system; none records nothing

    @property
    def device(self) -> torch.device:
        """Where the weights are, or what else it keeps; the CPU if there is nothing."""
        return next(chain(self.parameters(), self.buffers()), torch.empty(0)).device

    @property
    def repeated(self) -> nn.Module | None:
        """The part whose small errors its own later steps mend; none if there is no such part."""
        return None

    def precision(self, asked: str) -> str:
        """What is asked for, but float32 for `auto` where rounding would spoil this system's answers."""
        return asked

    def place(self, device: torch.device, precision: str) -> Self:
        """This system on the device, with weights of the precision; what became int8 stays so."""
        precision = self.precision(precision)
        if device.type != "cpu" and any(isinstance(module, Int8Linear) for module in self.modules()):
            raise Problem(f"This model was rounded to int8 for a CPU; load it again for {device}.")
        own = self.to(device, dtype=find_dtype(precision, device))
        round_weights(own.repeated, precision, device)
        return own

    def rest(self) -> None:
        """Leave training in all parts: an objective puts those that it trains into it, but not the system."""
        if self.training or any(part.training for part in self.children()):
            self.eval()

    @abstractmethod
    def drafts(
        self, rows: Sequence[Sequence[int]], how: Any, *, seed: int, places: Sequence[int], trace: bool
    ) -> list[Draft]:
        """The candidates of a batch of sources."""

    def course(
        self, rows: Sequence[Sequence[int]], how: Any, *, seed: int, places: Sequence[int], trace: bool
    ) -> Course:
        """The same, with pauses in which the device works on its own, if it can."""
        yield from ()
        return self.drafts(rows, how, seed=seed, places=places, trace=trace)

    @abstractmethod
    def selector(self, how: Any) -> Selector:
        """What picks one of a sentence's candidates."""

    def recorded(self) -> Captures | None:
        """The recorded steps, on a GPU; under autocast the weights may be elsewhere at the next call."""
        return self.captures if self.device.type == "cuda" and not torch.is_autocast_enabled() else None

    def sources(
        self, rows: Sequence[Sequence[int]], places: Sequence[int], *, few: bool
    ) -> tuple[Source, Tensor]:
        """A batch's sources and places; in `few` sizes, the last sentence standing in for missing ones."""
        longest = max(map(len, rows))
        if few:
            more = batch_size(len(rows)) - len(rows)
            rows, places = [*rows, *[rows[-1]] * more], [*places, *[places[-1]] * more]
            longest = width(longest, self.max_source)
        return self.layout.source(Rows.of(rows), width=longest), torch.tensor(places)

    def generate(
        self,
        texts: Sequence[str],
        *,
        seed: int = 0,
        batch: int = 32,
        places: Sequence[int] | None = None,
        trace: bool = False,
        selector: Selector | None = None,
        **settings: Any,
    ) -> Generated:
        """A text for each text; `settings` change this system's generation settings by name.

        The noise of a text depends on the seed and its place in the input (its index, unless `places` says
        otherwise), not on the batch. An empty text, or one of spaces, gives an empty text. A `selector` takes
        the place of the one that the settings name.
        """
        require_lists("generate", texts)
        if batch < 1:
            raise Problem(f"The batch must hold at least 1 sentence, not {batch}.")
        if places is not None and len(places) != len(texts):
            raise Problem(f"generate takes a place for each of {len(texts)} texts, not {len(places)}.")
        self.rest()
        with current(self.device):
            return self._generate(texts, settings, seed, batch, places, trace, selector)

    def _generate(
        self,
        texts: Sequence[str],
        settings: dict[str, Any],
        seed: int,
        batch: int,
        places: Sequence[int] | None,
        trace: bool,
        selector: Selector | None,
    ) -> Generated:
        how = change(self.how, settings, where="generate")
        places = range(len(texts)) if places is None else places
        select = selector or self.selector(how)
        rows = self.tokenizer.encode(texts)
        count = len(texts)
        result = Generated([""] * count, [[] for _ in rows], [[] for _ in rows], [[] for _ in rows])
        result.truncated = sum(len(row) > self.max_source for row in rows)
        rows = [row[: self.max_source] for row in rows]
        asked = (i for i, row in enumerate(rows) if row and texts[i].strip())
        order = sorted(asked, key=lambda i: len(rows[i]))
        courses: list[tuple[list[int], Course]] = []  # those begun, the last first
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            own = [rows[i] for i in chosen], [places[i] for i in chosen]
            courses.insert(0, (chosen, self.course(own[0], how, seed=seed, places=own[1], trace=trace)))
            courses = [
                (c, course) for c, course in courses if not self._go_on(result, texts, c, course, select)
            ]
        while courses:
            courses = [
                (c, course) for c, course in courses if not self._go_on(result, texts, c, course, select)
            ]
        return result

    def pairs(
        self,
        count: int,
        *,
        source: str = "",
        target: str = "",
        seed: int = 0,
        batch: int = 32,
        **settings: Any,
    ) -> list[tuple[str, str]]:
        """So many pairs of source and target, both written by the model; templates say what is given."""
        raise Problem("This system writes targets, not sources; a model of pairs, such as diffusion-lm, can.")

    def _go_on(
        self,
        result: Generated,
        sources: Sequence[str],
        chosen: Sequence[int],
        course: Course,
        select: Selector,
    ) -> bool:
        """Whether the course has come to its end; if so, the chosen texts have been put where they belong."""
        try:
            next(course)
        except StopIteration as end:
            drafts: list[Draft] = end.value
        else:
            return False
        candidates = self._candidates(drafts, [sources[i] for i in chosen])
        best = select.choose_all(candidates)
        for i, draft, own, place in zip(chosen, drafts, candidates, best, strict=True):
            self._put(result, i, draft, own, place)
        return True

    def _candidates(self, drafts: Sequence[Draft], sources: Sequence[str]) -> list[list[Candidate]]:
        texts = iter(self.tokenizer.decode([row for draft in drafts for row in draft.tokens]))
        return [
            [
                Candidate(text=next(texts), tokens=tuple(row), score=score, source=source)
                for row, score in zip(draft.tokens, draft.scores, strict=True)
            ]
            for draft, source in zip(drafts, sources, strict=True)
        ]

    def _put(
        self, result: Generated, i: int, draft: Draft, candidates: Sequence[Candidate], best: int
    ) -> None:
        texts = [candidate.text for candidate in candidates]
        result.texts[i], result.candidates[i], result.scores[i] = texts[best], texts, draft.scores
        if not draft.steps:
            return
        noisy = self.tokenizer.decode([step.noisy[best] for step in draft.steps])
        clean = self.tokenizer.decode([step.clean[best] for step in draft.steps])
        result.traces[i] = [
            Stop(step.time, *shown) for step, *shown in zip(draft.steps, noisy, clean, strict=True)
        ]


def current(device: torch.device) -> AbstractContextManager[Any]:
    """Within, events, streams and kernels are this device's, also where it is not the first GPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def require_lists(name: str, *lists: Sequence[str]) -> None:
    """Refuse lists that do not pair up, and a text in place of a list: it would be taken for its letters."""
    if any(isinstance(texts, str) for texts in lists):
        raise Problem(f"{name} takes a list of texts; put the one text into a list.")
    if len(set(map(len, lists))) > 1:
        counts = " and ".join(str(len(texts)) for texts in lists)
        raise Problem(f"{name} takes lists that pair up, not {counts} texts.")


def mbr(how: Any) -> MBR:
    """Minimum Bayes risk, as the settings have it."""
    return MBR(utility=how.utility, candidate_is=how.candidate_is, self_pair=how.self_pair)


SELECTORS: dict[str, Callable[[Any], Selector]] = {
    "mbr": mbr,
    "score": lambda how: BestScore(),
}
"""Selectors by the setting `select`."""
