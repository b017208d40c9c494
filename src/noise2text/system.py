"""Systems: what every trained model can do, whatever it is made of.

A system turns texts into texts. It packs them by length, decodes each batch into drafts, lets a selector
pick, and answers in the order of the input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from noise2text.decoding.autoregressive import AutoregressiveSettings, LeftToRight
from noise2text.decoding.captured import Captures, batch_size, width
from noise2text.decoding.likelihood import log_likelihoods
from noise2text.decoding.search import Rules
from noise2text.decoding.selection import MBR, BestScore, Candidate, Selector
from noise2text.decoding.settings import DiffusionSettings, GuidanceSettings, LengthSettings
from noise2text.decoding.strategies import Course, Draft, Parallel, finish
from noise2text.decoding.token_by_token import TokenByToken
from noise2text.decoding.word_by_word import WordByWord
from noise2text.diffusion.denoiser import Clamped, Denoiser, Memory
from noise2text.diffusion.guidance import Guided
from noise2text.diffusion.schedules import Rescaled, Schedule
from noise2text.diffusion.steering import Guidance
from noise2text.hardware import find_dtype, send
from noise2text.networks.int8 import round_weights
from noise2text.networks.lengths import PROPOSALS, Lengths
from noise2text.networks.writer import Writer
from noise2text.problem import Problem
from noise2text.settings import change
from noise2text.text.canvas import Layout, Source
from noise2text.text.ended import Ended
from noise2text.text.rows import Rows
from noise2text.text.template import Template, find_template
from noise2text.text.tokenizer import Tokenizer
from noise2text.training.classifier import load_classifier

__all__ = ["Autoregressive", "Diffusion", "Generated", "GuidedDiffusion", "LengthDiffusion", "Stop", "System"]


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

    def place(self, device: torch.device, precision: str) -> Self:
        """This system on the device, with weights of the precision; what became int8 stays so."""
        own = self.to(device, dtype=find_dtype(precision, device))
        round_weights(own.repeated, precision, device)
        return own

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
        otherwise), not on the batch. An empty text gives an empty text. A `selector` takes the place
        of the one that the settings name.
        """
        if isinstance(texts, str):
            raise Problem("generate takes a list of texts; put the one text into a list.")
        if batch < 1:
            raise Problem(f"The batch must hold at least 1 sentence, not {batch}.")
        how = change(self.how, settings, where="generate")
        places = range(len(texts)) if places is None else places
        select = selector or self.selector(how)
        rows = self.tokenizer.encode(texts)
        count = len(texts)
        result = Generated([""] * count, [[] for _ in rows], [[] for _ in rows], [[] for _ in rows])
        result.truncated = sum(len(row) > self.max_source for row in rows)
        rows = [row[: self.max_source] for row in rows]
        order = sorted((i for i, row in enumerate(rows) if row), key=lambda i: len(rows[i]))
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


class Diffusion(System):
    """An embedding-space diffusion model; the canvas is always full."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        layout: Layout,
        denoiser: Denoiser,
        schedule: Schedule,
        how: DiffusionSettings,
        max_source: int,
        max_target: int,
        written: Iterable[int] = (),
    ) -> None:
        """`written` are the special tokens that are part of a target, such as its end."""
        super().__init__()
        self.tokenizer, self.layout, self.how = tokenizer, layout, how
        self.max_source, self.max_target = max_source, max_target
        self.denoiser, self.schedule = denoiser, schedule
        forbidden = torch.zeros(len(tokenizer), dtype=torch.bool)
        forbidden[sorted(tokenizer.specials - set(written))] = True
        self.register_buffer("forbidden", forbidden, persistent=False)
        self.register_buffer("special", torch.tensor(sorted(tokenizer.specials)), persistent=False)

    forbidden: torch.Tensor
    special: torch.Tensor

    @property
    def repeated(self) -> nn.Module:
        return self.denoiser

    def propose(self, memory: Memory, how: Any, given: Template) -> tuple[Tensor, Tensor]:
        """The lengths to try for each sentence, and their log-probabilities."""
        return self.whole(memory, self.max_target)

    def whole(self, memory: Memory, length: int) -> tuple[Tensor, Tensor]:
        """One length for every sentence, held for certain."""
        lengths = torch.full((len(memory.padding), 1), length, device=memory.padding.device)
        return lengths, torch.zeros_like(lengths, dtype=torch.float)

    def drafts(
        self, rows: Sequence[Sequence[int]], how: Any, *, seed: int, places: Sequence[int], trace: bool
    ) -> list[Draft]:
        return finish(self.course(rows, how, seed=seed, places=places, trace=trace))

    def course(
        self, rows: Sequence[Sequence[int]], how: Any, *, seed: int, places: Sequence[int], trace: bool
    ) -> Course:
        if self.training:
            self.eval()
        strategy, given = self.strategy(how), find_template(how, self.tokenizer, self.room(how))
        captures = strategy.captures
        source, known = self.sources(rows, places, few=captures is not None)
        drafts = yield from strategy.course(
            source,
            how,
            lambda memory: self.propose(memory, how, given),
            given=given,
            seed=seed,
            places=known,
            trace=trace,
        )
        return drafts[: len(rows)]

    def strategy(self, how: Any) -> Parallel:
        """What decides what is walked, with this system's parts."""
        return _STRATEGIES[how.strategy](
            self.guided(how),
            self.down(how),
            self.layout,
            self.schedule.steps,
            self.forbidden,
            self.special,
            longest=self.max_target,
            captures=self.recorded(),
            guidance=self.guidance(how),
        )

    def guided(self, how: Any) -> Denoiser:
        """The denoiser with what the settings wrap around it."""
        return Clamped(self.denoiser) if how.clamp else self.denoiser

    def guidance(self, how: DiffusionSettings) -> Guidance | None:
        """The classifier that the settings name, and where it steers to."""
        if not how.guide:
            return None
        folder = Path(how.guide)
        classifier, labels = load_classifier(folder, self.denoiser.space)
        if how.guide_class not in labels:
            raise Problem(
                f"The classifier in {folder} has no class {how.guide_class!r}; it has {', '.join(labels)}."
            )
        return Guidance(
            classifier,
            labels.index(how.guide_class),
            steps=how.guide_steps,
            rate=how.guide_rate,
            fluency=how.fluency,
        )

    def down(self, how: Any) -> nn.Module:
        """The schedule that generation goes down by."""
        return self.schedule

    def room(self, how: Any) -> int:
        """The longest target that can be written."""
        return self.max_target

    def selector(self, how: Any) -> Selector:
        return _SELECTORS[how.select](how)


class GuidedDiffusion(Diffusion):
    """A diffusion model that learned to write without a source, too, and can be led by the difference."""

    how: GuidanceSettings

    def guided(self, how: GuidanceSettings) -> Denoiser:
        denoiser = Guided(self.denoiser, self.layout, how.guidance) if how.guidance else self.denoiser
        return Clamped(denoiser) if how.clamp else denoiser


class LengthDiffusion(Diffusion):
    """A diffusion model that predicts the length of the target first."""

    def __init__(self, tokenizer: Tokenizer, *, lengths: Lengths, how: LengthSettings, **parts: Any) -> None:
        super().__init__(tokenizer, how=how, **parts)
        self.lengths = lengths

    def room(self, how: LengthSettings) -> int:
        return how.length or self.max_target

    def down(self, how: LengthSettings) -> nn.Module:
        return self.schedule if how.factor == 1 else Rescaled(self.schedule, how.factor)

    def propose(self, memory: Memory, how: LengthSettings, given: Template) -> tuple[Tensor, Tensor]:
        if how.length is None:
            if given.is_exact:
                return self.whole(memory, given.least)
            return self.lengths.propose(memory, how.length_beam, PROPOSALS[how.lengths])
        if how.length > self.max_target:
            raise Problem(
                f"The length must be at most {self.max_target}, this model's longest, not {how.length}."
            )
        return self.whole(memory, how.length)


_STRATEGIES: dict[str, Callable[..., Parallel]] = {
    "parallel": Parallel,
    "token-by-token": TokenByToken,
    "word-by-word": WordByWord,
}


class Autoregressive(System):
    """A model that writes from left to right; it can also say how likely a given text is."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        writer: Writer,
        how: AutoregressiveSettings,
        max_source: int,
        max_target: int,
        layout: Ended | None = None,
    ) -> None:
        """Without a `layout` a source is its tokens alone."""
        super().__init__()
        self.tokenizer, self.how, self.writer = tokenizer, how, writer
        self.layout = layout or Ended(tokenizer.pad, tokenizer.eos)
        self.max_source, self.max_target = max_source, max_target
        forbidden = torch.tensor(sorted(tokenizer.specials - {tokenizer.eos}), dtype=torch.long)
        self.register_buffer("forbidden", forbidden, persistent=False)

    forbidden: torch.Tensor

    def drafts(
        self, rows: Sequence[Sequence[int]], how: Any, *, seed: int, places: Sequence[int], trace: bool
    ) -> list[Draft]:
        return self.decode(self.writer, rows, how, seed=seed, places=places, trace=trace)

    def decode(
        self,
        writer: Writer,
        rows: Sequence[Sequence[int]],
        how: Any,
        *,
        seed: int,
        places: Sequence[int],
        trace: bool,
    ) -> list[Draft]:
        """What a writer, this system's or one around it, makes of the sources at these places."""
        if self.training:
            self.eval()
        rules = Rules(self.tokenizer.eos, self.tokenizer.pad, self.forbidden, self.max_target)
        captures = self.recorded()
        source, known = self.sources(rows, places, few=captures is not None)
        drafts = LeftToRight(writer, self.tokenizer.bos, rules, captures).decode(
            source.to(self.device),
            how,
            prefix=self.tokenizer.encode([how.prefix])[0],
            seed=seed,
            places=send(known, self.device),
            trace=trace,
        )
        return drafts[: len(rows)]

    def selector(self, how: Any) -> Selector:
        return _SELECTORS[how.select](how)

    def likelihood(
        self, texts: Sequence[str], targets: Sequence[str], *, per_token: bool = False, batch: int = 64
    ) -> list[float]:
        """log p(target | text) of each pair, the end included; or its mean over the tokens and the end.

        A target that this model cannot write has −∞: one that is too long, or any but the empty one
        to an empty text. A text that is too long is cut, as for `generate`.
        """
        self.eval()
        sources = [row[: self.max_source] for row in self.tokenizer.encode(texts)]
        return log_likelihoods(
            self.writer,
            self.layout,
            sources,
            self.tokenizer.encode(targets),
            bos=self.tokenizer.bos,
            longest=self.max_target,
            per_token=per_token,
            batch=batch,
        )


_SELECTORS: dict[str, Callable[[Any], Selector]] = {
    "mbr": lambda how: MBR(utility=how.utility, candidate_is=how.candidate_is, self_pair=how.self_pair),
    "score": lambda how: BestScore(),
}
