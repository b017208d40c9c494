"""From left to right: a writer scores the next token, a search chooses, until every sentence is done.

The source is read once a sentence, its hypotheses share it. A step has fixed shapes and stays on the
device; the part of the past that it looks at grows in blocks, and the host asks only every few steps
whether all is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from noise2text.acceleration.cuda_graphs import Captures, Graph, copied, fill, shapes, who
from noise2text.core.config import option, require_choice, require_least
from noise2text.core.errors import Problem
from noise2text.core.random import key
from noise2text.data.layouts.canvas import Source
from noise2text.generation.beam_search import Beam, DiverseBeams
from noise2text.generation.parallel import Draft, Step
from noise2text.generation.search import Rules, Search
from noise2text.generation.token_sampling import Greedy, Sampling
from noise2text.nn.denoiser import Memory
from noise2text.nn.incremental_decoder import Writer

__all__ = ["AutoregressiveSettings", "LeftToRight", "Page", "RecordedPage"]

BLOCK = 16  # positions by which the visible past grows
PATIENCE = {"cpu": 1}  # steps between two looks at whether all is over, where a look costs nothing
ELSEWHERE = 8


@dataclass(frozen=True)
class AutoregressiveSettings:
    """The search or the sampling, and the selection; the defaults are Difformer's table 3 with b = 5."""

    beam: int = option(5, "hypotheses of the beam search; 1 is greedy")
    length_penalty: float = option(1.0, "a score is the log-probability over the length to this power")
    diverse_groups: int = option(1, "groups of diverse beam search; they share the beam")
    diversity: float = option(0.5, "what a later group pays for a token that an earlier one has just written")
    samples: int = option(0, "texts drawn at random a sentence; 0 searches by the beam")
    temperature: float = option(1.0, "of sampling: below 1 sharper, above 1 flatter")
    top_k: int = option(0, "of sampling: draw from the k likeliest tokens; 0 is from all")
    top_p: float = option(1.0, "of sampling: draw from the fewest tokens that reach this probability")
    select: str = option("score", "which candidate: score (see length_penalty) or mbr")
    utility: str = option("bleu", "what MBR compares with: bleu, bleu-nltk4, chrf or unigram")
    candidate_is: str = option(
        "hypothesis", "MBR's direction: the candidate is the hypothesis or the reference"
    )
    self_pair: bool = option(True, "whether MBR compares a candidate with itself too, as its equation does")
    prefix: str = option("", "what every text begins with")
    length: int | None = option(None, "write exactly so many tokens; none lets the model end")

    def __post_init__(self) -> None:
        require_least(self, 1, "beam", "diverse_groups", *(["length"] if self.length is not None else []))
        require_least(self, 0, "samples", "top_k", "diversity")
        if self.beam % self.diverse_groups:
            raise Problem(
                f"The setting beam must be a multiple of diverse_groups, not {self.beam} of "
                f"{self.diverse_groups}."
            )
        if not self.temperature > 0 or not 0 < self.top_p <= 1:
            raise Problem(
                f"The temperature must be above 0 and top_p above 0 and at most 1, not {self.temperature} "
                f"and {self.top_p}."
            )
        if not self.samples and (self.temperature, self.top_k, self.top_p) != (1, 0, 1):
            raise Problem("The settings temperature, top_k and top_p are for sampling: set samples, too.")
        require_choice(self, "select", ("mbr", "score"))
        require_choice(self, "utility", ("bleu", "bleu-nltk4", "chrf", "unigram"))
        require_choice(self, "candidate_is", ("hypothesis", "reference"))

    def search(self, rules: Rules, *, seed: int, places: Tensor) -> Search:
        """The search for the sentences at these places (B,) of the input."""
        if self.samples:
            keys = key(seed, places[:, None], torch.arange(self.samples, device=places.device))
            return Sampling(
                keys,
                rules=rules,
                temperature=self.temperature,
                top_k=self.top_k,
                top_p=self.top_p,
                length_penalty=self.length_penalty,
            )
        score: dict[str, Any] = {
            "rules": rules,
            "length_penalty": self.length_penalty,
            "device": places.device,
        }
        if self.beam == 1:
            return Greedy(len(places), **score)
        size = self.beam // self.diverse_groups
        beams = [Beam(len(places), size, **score) for _ in range(self.diverse_groups)]
        return beams[0] if len(beams) == 1 else DiverseBeams(beams, diversity=self.diversity)


class Page:
    """What is written of a batch: the writer's notebook, the last tokens and where they stand."""

    def __init__(self, writer: Writer, memory: Memory, search: Search, *, length: int) -> None:
        self.writer, self.memory, self.search, self.length = writer, memory, search, length
        device = memory.padding.device
        self.notebook = writer.begin(memory, search.hypotheses, length=length)
        self.tokens = torch.zeros(
            len(memory.padding), search.hypotheses, dtype=torch.long, device=device
        )  # (B, K)
        self.position = torch.zeros(1, dtype=torch.long, device=device)

    def write(self, given: Sequence[int]) -> None:
        """Go on from the given tokens until the search is over; there is at least one."""
        for place, token in enumerate(given[:-1]):
            self.tokens.fill_(token)
            self.score(visible=self._visible(place))
        self.tokens.fill_(given[-1])
        patience = PATIENCE.get(self.tokens.device.type, ELSEWHERE)
        for place in range(len(given) - 1, self.length):
            self.advance(visible=self._visible(place))
            if place % patience == 0 and bool(self.search.over()):
                break

    def advance(self, *, visible: int) -> None:
        """One token more for each hypothesis; it does the same work each time, without asking the host."""
        tokens, parents = self.search.choose(self.score(visible=visible))
        self.tokens.copy_(tokens)
        if parents is not None:
            self.writer.reorder(self.notebook, parents)

    def score(self, *, visible: int) -> Tensor:
        """The scores (B, K, V) of what follows the last tokens, which are noted."""
        logits = self.writer.step(self.tokens, self.position, self.notebook, self.memory, visible=visible)
        self.position.add_(1)
        return logits

    def _visible(self, place: int) -> int:
        return min(self.length, (place // BLOCK + 1) * BLOCK)


class RecordedPage(Page):
    """A page whose step is recorded, once for each stretch of the past that it looks at."""

    def __init__(self, writer: Writer, memory: Memory, search: Search, *, length: int, pool: Any) -> None:
        super().__init__(writer, copied(memory), search, length=length)
        self.pool = pool
        self.graphs: dict[int, Graph[None]] = {}

    def begin(self, memory: Memory, search: Search) -> None:
        """Put other sentences, and a search that has not begun, in the place of the last ones."""
        fill(self.memory, memory)
        fresh = Page(self.writer, memory, search, length=self.length)
        for mine, theirs in zip(_state(self), _state(fresh), strict=True):
            mine.copy_(theirs)

    def advance(self, *, visible: int) -> None:
        if visible not in self.graphs:
            now = [tensor.clone() for tensor in _state(self)]
            self.position.zero_()  # recording tries the step, so there must be room for it
            self.search.rewind()
            self.graphs[visible] = Graph(partial(super().advance, visible=visible), pool=self.pool)
            for mine, kept in zip(_state(self), now, strict=True):
                mine.copy_(kept)
        self.graphs[visible]()


def _state(page: Page) -> Iterator[Tensor]:
    """All that a step changes."""
    yield from (page.tokens, page.position)
    yield from _tensors(page.notebook)
    yield from _tensors(page.search)


def _tensors(part: Any) -> Iterator[Tensor]:
    """The tensors of an object and of what it is made of, in one order."""
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, list | tuple):
        for each in part:
            yield from _tensors(each)
    elif hasattr(part, "__dict__") and not isinstance(part, type):
        for name in sorted(vars(part)):
            yield from _tensors(vars(part)[name])


@dataclass(frozen=True)
class LeftToRight:
    """The parts of an autoregressive system that decode a batch."""

    writer: Writer
    bos: int
    rules: Rules
    captures: Captures | None = None  # recorded steps, where there are any

    @torch.inference_mode()
    def decode(
        self,
        source: Source,
        how: AutoregressiveSettings,
        *,
        prefix: Sequence[int] = (),
        seed: int,
        places: Tensor,
        trace: bool = False,
    ) -> list[Draft]:
        """The drafts of each sentence; `places` (B,) is where the sentences stand in the input."""
        rules = self._left(how, len(prefix))
        search = how.search(rules, seed=seed, places=places)
        page = self._page(source, how, search, length=len(prefix) + rules.longest + 1)
        page.write([self.bos, *prefix])
        tokens, scores = page.search.result()
        return [
            self._draft(rows, scored, prefix, trace=trace)
            for rows, scored in zip(tokens.tolist(), scores.tolist(), strict=True)
        ]

    def _page(self, source: Source, how: AutoregressiveSettings, search: Search, *, length: int) -> Page:
        """An empty page for the sentences, or one that was recorded and is emptied."""
        captures = self.captures
        if captures is None:
            return Page(self.writer, self.writer.read(source), search, length=length)
        memory = captures.read(self.writer, source)
        name = ("page", who(self.writer), how, length, *shapes(memory))
        page: RecordedPage = captures.find(
            name, lambda pool: RecordedPage(self.writer, memory, search, length=length, pool=pool)
        )
        page.begin(memory, search)
        return page

    def _left(self, how: AutoregressiveSettings, given: int) -> Rules:
        """The rules for what is left to write after so many given tokens."""
        rules = self.rules
        if how.length is not None:
            if how.length > rules.longest:
                raise Problem(
                    f"The length must be at most {rules.longest}, this model's longest, not {how.length}."
                )
            rules = replace(rules, longest=how.length, shortest=how.length)
        if given >= rules.longest:
            raise Problem(f"The prefix has {given} of {rules.longest} tokens: that leaves nothing to write.")
        return replace(rules, longest=rules.longest - given, shortest=max(0, rules.shortest - given))

    def _draft(
        self, rows: list[list[int]], scores: list[float], prefix: Sequence[int], *, trace: bool
    ) -> Draft:
        """A sentence's candidates; a step of the trace shows what had been written of each."""
        ended = [(row, score) for row, score in zip(rows, scores, strict=True) if score > -torch.inf]
        texts = [[*prefix, *row[: row.index(self.rules.eos)]] for row, _ in ended]
        longest = max(map(len, texts))
        steps = []
        for count in range(len(prefix), longest + 1) if trace else ():
            so_far = [text[:count] for text in texts]
            steps.append(Step(1 - count / longest if longest else 0.0, so_far, so_far))
        return Draft(texts, [score for _, score in ended], steps)
