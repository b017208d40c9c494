"""What to walk: 2D parallel decoding (Difformer, section 3.3).

A sentence is tried at b₁ lengths, each from b₂ noises; all candidates of all sentences of a batch go down
together, and share their sentence's encoding. The host waits once, for the lengths; what is small and
depends on them is then made on the host and sent over.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from noise2text.acceleration.cuda_graphs import Captures, width
from noise2text.core.devices import send
from noise2text.core.random import key
from noise2text.data.layouts.canvas import Canvas, Layout, Source
from noise2text.data.layouts.template import OPEN, Template
from noise2text.diffusion.classifier_guidance import Guidance
from noise2text.diffusion.sampler import Lay, Prepare, State, eager, lay, strided, walk
from noise2text.generation.config import DiffusionSettings
from noise2text.generation.denoising_likelihood import Noised
from noise2text.nn.denoiser import Denoiser, Estimate, Memory, rows_at_once

__all__ = ["Course", "Draft", "Parallel", "Prompt", "Propose", "Step", "finish"]

Rows = list[list[int]]
Propose = Callable[[Memory], tuple[Tensor, Tensor]]
"""The lengths (B, b₁) to try for each sentence, and their log-probabilities."""
Course = Generator[None, None, list["Draft"]]
"""The way to a batch's drafts; it pauses where the device has work to do and the host has none."""


@dataclass(frozen=True)
class Step:
    """A sentence's candidates at one time: the noisy canvas and its clean estimate, both rounded."""

    time: float
    noisy: Rows
    clean: Rows


@dataclass(frozen=True)
class Draft:
    """A sentence's candidates: tokens and score, best length first; and the steps there, if traced."""

    tokens: Rows
    scores: list[float]
    steps: list[Step]


@dataclass(frozen=True)
class Prompt:
    """Where the candidates of a batch start: a row a candidate, but for the memory."""

    memory: Memory
    source: Source
    canvas: Canvas  # on the host
    keys: Tensor  # (B·b₁·b₂,)
    scores: Tensor  # (B·b₁·b₂,), the lengths' log-probabilities

    def spread(self) -> Canvas:
        """The canvas on the device, where its source is already."""
        return replace(self.canvas, source=self.source).to(self.keys.device)


@dataclass(frozen=True)
class Parallel:
    """The parts of a diffusion system that decode all candidates at once."""

    denoiser: Denoiser
    schedule: nn.Module
    layout: Layout
    resolution: int
    forbidden: Tensor  # (V,), tokens that are never written
    special: Tensor  # (S,), tokens that are no text
    longest: int  # target that the model can write
    captures: Captures | None = None  # recorded graphs, where there are any
    guidance: Guidance | None = None
    judge: Noised | None = None  # what scores the texts, if not the walk that wrote them

    @torch.inference_mode()
    def course(
        self,
        source: Source,
        how: DiffusionSettings,
        propose: Propose,
        *,
        given: Template = OPEN,
        seed: int,
        places: Tensor,
        trace: bool = False,
    ) -> Course:
        """The drafts of each sentence; `source` is on the host, `places` (B,) is where it is in the input.

        Pauses when the lengths, and when the walk, have been asked for.
        """
        prompt = yield from self._prompt(source, how, propose, given=given, seed=seed, places=places)
        canvas, steps = prompt.spread(), []
        for state in self._walk(prompt, canvas, how, seed=seed, through=not trace):
            if trace:
                rounded = self._round(canvas, state.estimate)[0]
                steps.append((state.time, self.denoiser.space.nearest(state.z), rounded))
        tokens, scores = self._round(canvas, state.estimate)  # (B·C, L)
        kept = ~(canvas.padding | canvas.frozen)
        scores = (scores * kept).sum(1) / kept.sum(1) + prompt.scores
        drafts = yield from self._drafts(prompt, canvas, tokens, scores, steps)
        return drafts

    def _prompt(
        self,
        source: Source,
        how: DiffusionSettings,
        propose: Propose,
        *,
        given: Template,
        seed: int,
        places: Tensor,
    ) -> Generator[None, None, Prompt]:
        """The canvas, the key and the length's score of every candidate."""
        device, captures = self.forbidden.device, self.captures
        there = source.to(device)
        memory = captures.read(self.denoiser, there) if captures else self.denoiser.read(there)
        proposed, length_scores = propose(memory)
        if proposed.device.type != "cpu":
            proposed, ready = proposed.to("cpu", non_blocking=True), _mark(device)
            yield
            ready()
        lengths = given.fit(proposed, self.longest)
        empty = self._empty(source, lengths.repeat_interleave(how.noise_beam, dim=1))
        keys = self._keys(source, lengths, seed=seed, places=places, noises=how.noise_beam)
        scores = send(length_scores.repeat_interleave(how.noise_beam, dim=1).flatten(), device)
        canvas = self.layout.give(empty, given)
        return Prompt(memory, there, canvas, send(keys, device), scores)

    def _walk(
        self,
        prompt: Prompt,
        canvas: Canvas,
        how: DiffusionSettings,
        *,
        seed: int,
        through: bool,
        number: int = 0,
    ) -> Iterator[State]:
        """A walk on the canvas, which is on the device, with the noise of its number."""
        return walk(
            self.denoiser,
            self.schedule,
            prompt.memory,
            self.denoiser.hold(canvas),
            key(prompt.keys, number) if number else prompt.keys,
            strided(how.steps, resolution=self.resolution, stop_early=how.stop_early),
            lay=self._lay(how, seed),
            prepare=self._prepare(canvas),
            through=through,
        )

    def _drafts(
        self,
        prompt: Prompt,
        canvas: Canvas,
        tokens: Tensor,
        scores: Tensor,
        steps: Sequence[tuple[float, Tensor, Tensor]],
    ) -> Course:
        """What was written, sentence by sentence, and the rounded steps there; pauses for the device."""
        device = self.forbidden.device
        if self.judge:
            scores = _judged(self.judge, prompt, canvas, tokens)
        tokens, scores = (each.to("cpu", non_blocking=True) for each in (tokens, scores))
        done = _mark(device)
        yield
        done()
        rows = self._read(prompt.canvas, tokens)
        traced = [
            (time, self._read(prompt.canvas, noisy), self._read(prompt.canvas, clean))
            for time, noisy, clean in steps
        ]
        return [
            Draft(rows[i], scored, [Step(time, noisy[i], clean[i]) for time, noisy, clean in traced])
            for i, scored in enumerate(scores.view(len(rows), -1).tolist())
        ]

    def _lay(self, how: DiffusionSettings, seed: int) -> Lay:
        """How paths are made; where steps are recorded, each is made once."""
        new = partial(lay, fresh=how.fresh(seed), order=how.order)
        return self.captures.lay(new, how, seed) if self.captures else new

    def _prepare(self, canvas: Canvas) -> Prepare:
        """How the steps are made; steered ones need gradients, which are not recorded."""
        if self.guidance:
            return partial(eager, steer=self.guidance.over(self.layout.text(canvas) & ~canvas.padding))
        return self.captures.prepare if self.captures else eager

    def _empty(self, source: Source, lengths: Tensor) -> Canvas:
        """The empty canvases, a little wider than need be where their shapes should be few."""
        longest = int(lengths.max())
        room = width(longest, self.longest) if self.captures else longest
        return self.layout.prompt(source, lengths, width=room)

    def _keys(self, source: Source, lengths: Tensor, *, seed: int, places: Tensor, noises: int) -> Tensor:
        """The keys (B·b₁·b₂,) of the candidates' noise; where a length comes again, its noise is new."""
        offsets = lengths - (~source.padding).sum(1, keepdim=True)  # (B, b₁)
        again = (lengths[:, :, None] == lengths[:, None, :]).tril(-1).sum(2)  # (B, b₁)
        numbers = again[:, :, None] * noises + torch.arange(noises)
        return key(seed, places[:, None, None], offsets[:, :, None], numbers).flatten()

    def _read(self, canvas: Canvas, tokens: Tensor) -> list[Rows]:
        """The rows of each sentence's candidates."""
        rows, sentences = self.layout.read(canvas, tokens.cpu()), len(canvas.source.tokens)
        size = len(rows) // sentences
        return [rows[i * size : (i + 1) * size] for i in range(sentences)]

    def _round(self, canvas: Canvas, estimate: Estimate) -> tuple[Tensor, Tensor]:
        """The likeliest token at each place, or the given one, and its log-probability."""
        size = rows_at_once(estimate, len(self.forbidden))
        inner = canvas.frozen.flip(1).cumsum(1).flip(1) > 0  # before what is given a text cannot end
        parts = zip(*(each.split(size) for each in (estimate.mean, estimate.hidden, inner)), strict=True)
        best = [self._best(Estimate(mean, hidden), within) for mean, hidden, within in parts]
        tokens, scores = (torch.cat(each) for each in zip(*best, strict=True))
        return torch.where(canvas.frozen, canvas.tokens, tokens), scores

    def _best(self, estimate: Estimate, inner: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.denoiser.logits(estimate).float().masked_fill(self.forbidden, -torch.inf)
        logits[..., self.special] = logits[..., self.special].masked_fill(inner[..., None], -torch.inf)
        best = logits.max(-1)
        return best.indices, best.values - logits.logsumexp(-1)


def finish(course: Course) -> list[Draft]:
    """The drafts at the end of a course, without a use for its pauses."""
    while True:
        try:
            next(course)
        except StopIteration as end:
            drafts: list[Draft] = end.value
            return drafts


def _judged(judge: Noised, prompt: Prompt, canvas: Canvas, tokens: Tensor) -> Tensor:
    """How likely the judge finds the texts (B·C, L) and their lengths, a token: (B·C,)."""
    text = ~canvas.padding
    written = replace(canvas, tokens=tokens, frozen=torch.zeros_like(text), scored=text)
    return (judge(prompt.memory, written) + prompt.scores) / text.sum(1)


def _mark(device: torch.device) -> Callable[[], None]:
    """What waits until the device has done all that it was asked to do so far."""
    if device.type != "cuda":
        return lambda: None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event.synchronize
