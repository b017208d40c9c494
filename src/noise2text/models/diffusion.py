"""Diffusion systems: a denoiser, a schedule, a layout, and the strategy that the settings name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from noise2text.core.errors import Problem
from noise2text.data.layouts.canvas import Canvas, Layout
from noise2text.data.layouts.template import Template, find_template
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.classifier_free_guidance import Guided
from noise2text.diffusion.classifier_guidance import Guidance
from noise2text.diffusion.parameterization import Mean, Reading
from noise2text.diffusion.schedules import Rescaled, Schedule
from noise2text.generation.config import DiffusionSettings, GuidanceSettings, LengthSettings
from noise2text.generation.denoising_likelihood import TIME, Noised
from noise2text.generation.likelihood import log_likelihoods
from noise2text.generation.parallel import Course, Draft, Parallel, finish
from noise2text.generation.selection import Selector
from noise2text.generation.token_by_token import TokenByToken
from noise2text.generation.weighted_mbr import Weighed
from noise2text.generation.word_by_word import WordByWord
from noise2text.models.model import SELECTORS, System, current, mbr, require_lists
from noise2text.nn.denoiser import Clamped, Denoiser, Memory
from noise2text.nn.length_predictor import PROPOSALS, Lengths
from noise2text.training.classifier import load_classifier

__all__ = ["Diffusion", "GuidedDiffusion", "LengthDiffusion"]


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

    def precision(self, asked: str) -> str:
        by_mean = isinstance(self.denoiser, Reading) and isinstance(self.denoiser.head, Mean)
        return "float32" if by_mean and asked == "auto" else asked

    def propose(self, memory: Memory, how: Any, given: Template) -> tuple[Tensor, Tensor]:
        """The lengths to try for each sentence, and their log-probabilities."""
        return self.whole(memory, self.max_target)

    def whole(self, memory: Memory, length: int) -> tuple[Tensor, Tensor]:
        """One length for every sentence, held for certain; on the host, which need not wait for it."""
        lengths = torch.full((len(memory.padding), 1), length)
        return lengths, torch.zeros_like(lengths, dtype=torch.float)

    def drafts(
        self, rows: Sequence[Sequence[int]], how: Any, *, seed: int, places: Sequence[int], trace: bool
    ) -> list[Draft]:
        return finish(self.course(rows, how, seed=seed, places=places, trace=trace))

    def course(
        self, rows: Sequence[Sequence[int]], how: Any, *, seed: int, places: Sequence[int], trace: bool
    ) -> Course:
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
            judge=self.judge(how),
        )

    def judge(self, how: Any) -> Noised | None:
        """What scores the candidates, if not the walk that wrote them."""
        return None

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
        return self.schedule if how.factor == 1 else Rescaled(self.schedule, how.factor)

    def room(self, how: Any) -> int:
        """The longest target that can be written."""
        return self.max_target

    def selector(self, how: Any) -> Selector:
        return SELECTORS[how.select](how)


class GuidedDiffusion(Diffusion):
    """A diffusion model that learned to write without a source, too, and can be led by the difference."""

    how: GuidanceSettings

    def guided(self, how: GuidanceSettings) -> Denoiser:
        denoiser = Guided(self.denoiser, self.layout, how.guidance) if how.guidance else self.denoiser
        return Clamped(denoiser) if how.clamp else denoiser


class LengthDiffusion(Diffusion):
    """A diffusion model that predicts the length of the target first."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        lengths: Lengths,
        how: LengthSettings,
        training: nn.Module | None = None,
        **parts: Any,
    ) -> None:
        """`training` is the schedule that the denoiser learned from, if not that of generation."""
        super().__init__(tokenizer, how=how, **parts)
        self.lengths, self.learned_from = lengths, training or self.schedule

    def likelihood(
        self, texts: Sequence[str], targets: Sequence[str], *, per_token: bool = False, batch: int = 64
    ) -> list[float]:
        """How likely each target is, as this model reads it through noise; or the mean over its tokens.

        A target that this model cannot write has −∞. A text that is too long is cut, as for `generate`.
        """
        require_lists("likelihood", texts, targets)
        self.rest()
        rows = self.tokenizer.encode(targets)
        with current(self.device):
            found = log_likelihoods(
                self._measure,
                self.layout,
                [row[: self.max_source] for row in self.tokenizer.encode(texts)],
                rows,
                shortest=1,
                longest=self.max_target,
                batch=batch,
                device=self.device,
            )
        return (
            [value / max(1, len(row)) for value, row in zip(found, rows, strict=True)] if per_token else found
        )

    @torch.inference_mode()
    def _measure(self, canvas: Canvas) -> Tensor:
        """How likely the target of each row is, (B,)."""
        memory = self.denoiser.read(canvas.source)
        tokens = Noised(self.denoiser, self.learned_from)(memory, canvas)
        return tokens - self.lengths.surprise(memory, canvas.padding)[:, 0]

    def judge(self, how: LengthSettings) -> Noised | None:
        weighed = how.select == "weighed"
        return Noised(self.denoiser, self.learned_from, self.recorded()) if weighed else None

    def selector(self, how: LengthSettings) -> Selector:
        by = f"own,time:{TIME}"
        return Weighed(mbr(how), by) if how.select == "weighed" else super().selector(how)

    def room(self, how: LengthSettings) -> int:
        return how.length or self.max_target

    def propose(self, memory: Memory, how: LengthSettings, given: Template) -> tuple[Tensor, Tensor]:
        if how.length is None:
            if given.is_exact:
                return self.whole(memory, given.least)
            return self._likely(memory, how)
        if how.length > self.max_target:
            raise Problem(
                f"The length must be at most {self.max_target}, this model's longest, not {how.length}."
            )
        return self.whole(memory, how.length)

    def _likely(self, memory: Memory, how: LengthSettings) -> tuple[Tensor, Tensor]:
        """The lengths that the model thinks likely."""

        def likely(memory: Memory) -> tuple[Tensor, Tensor]:
            return self.lengths.propose(memory, how.length_beam, PROPOSALS[how.lengths])

        name = ("lengths", self.lengths.classes.weight.data_ptr(), how.length_beam, how.lengths)
        captures = self.recorded()
        return captures.call(name, likely, memory) if captures else likely(memory)


_STRATEGIES: dict[str, Callable[..., Parallel]] = {
    "parallel": Parallel,
    "token-by-token": TokenByToken,
    "word-by-word": WordByWord,
}
