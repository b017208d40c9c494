"""Generate texts for a stream of inputs, window by window, in the order of the input."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from noise2text.commands.windows import CutWindows, growing_windows
from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem
from noise2text.generation.alternatives import FLOOR
from noise2text.generation.likelihood import LikelihoodSelector, require_reduction
from noise2text.generation.selection import Candidate, Selector, WithoutCopies
from noise2text.models import AutoregressiveModel, Model, TraceStep
from noise2text.models.folder import load
from noise2text.models.output import GenerationOutput
from noise2text.models.requests import GenerationRequest

__all__ = ["GeneratedText", "build_selector", "generate_texts", "remove_teacher", "split_output"]


@dataclass(frozen=True)
class GeneratedText:
    """A generated text, its candidates and, if requested, its text at each step."""

    text: str
    candidates: list[str]
    scores: list[float]
    trace: list[TraceStep]
    alternatives: list[str] = field(default_factory=list)  # with the text, if more than one was asked for

    def as_text(self, separator: str = "\t") -> str:
        """The text on one line, with spaces for line breaks; alternatives follow, with spaces for tabs."""
        if len(self.alternatives) < 2:
            return re.sub(r"[\r\n]+", " ", self.text.rstrip("\r\n"))
        return separator.join(re.sub(r"[\r\n\t]+", " ", text) for text in self.alternatives)

    def as_json(self) -> str:
        """The text, its candidates and any trace as a line of JSON Lines, which `evaluate` reads."""
        return json.dumps(self.as_record(), ensure_ascii=False)

    def as_record(self) -> dict[str, Any]:
        """The text, its candidates and any trace as what JSON can hold."""
        pairs = zip(self.candidates, self.scores, strict=True)
        finite = ((text, score if math.isfinite(score) else None) for text, score in pairs)  # JSON has no ∞
        candidates = [{"text": text, "score": score} for text, score in finite]
        trace = (
            {"trace": [{"time": step.time, "text": step.text} for step in self.trace]} if self.trace else {}
        )
        more = {"alternatives": self.alternatives} if self.alternatives else {}
        return {"text": self.text} | more | {"candidates": candidates} | trace


def build_selector(
    model: Model,
    overrides: Mapping[str, Any],
    teacher: Path | None,
    *,
    reduction: str,
    device: str | None,
    precision: str,
    copies: bool = True,
) -> tuple[Selector, dict[str, Any]]:
    """The teacher as selector with `--select teacher`, else the model's own; and the model's overrides.

    Without `copies`, candidates that copy their source are left out.
    """
    remaining = remove_teacher(overrides, teacher, reduction=reduction)
    config = apply_overrides(model.generation_config, remaining, origin="generate")
    selector = (
        model.build_selector(config)
        if teacher is None
        else _load_teacher(teacher, reduction=reduction, device=device, precision=precision)
    )
    return selector if copies else WithoutCopies(selector), remaining


def remove_teacher(overrides: Mapping[str, Any], teacher: Path | None, *, reduction: str) -> dict[str, Any]:
    """The overrides without `select=teacher`, which is not a setting of the model.

    Raises a Problem if only one of --select teacher and --teacher is given.
    """
    if (overrides.get("select") == "teacher") != (teacher is not None):
        raise Problem("To select by a teacher, give both --select teacher and --teacher DIR.")
    if teacher is None and reduction != "mean":
        raise Problem(
            "--likelihood is an option of the teacher: also give --select teacher and --teacher DIR."
        )
    require_reduction(reduction)
    return {name: value for name, value in overrides.items() if teacher is None or name != "select"}


def _load_teacher(teacher: Path, *, reduction: str, device: str | None, precision: str) -> Selector:
    # Unlike sampling, a teacher has no later steps that correct the errors of int8.
    teacher_precision = "auto" if precision == "int8" else precision
    model = load(teacher, device=device, precision=teacher_precision)
    if not isinstance(model, AutoregressiveModel):
        raise Problem(
            f"{teacher} is not autoregressive: give the folder of a transformer or a gru as the teacher."
        )
    return LikelihoodSelector(model, reduction=reduction)


def generate_texts(
    model: Model,
    texts: Iterable[str],
    *,
    seed: int,
    batch: int,
    trace: bool,
    overrides: Mapping[str, Any],
    selector: Selector,
    n: int = 1,
    floor: float = FLOOR,
    show_line: Callable[[str], None],
    cut_windows: CutWindows = growing_windows,
    done: int = 0,
    advance: Callable[[int], None] = lambda count: None,
) -> Iterator[GeneratedText]:
    """One generated text per input; the first `done` of them are left out, for a job that is resumed.

    `advance` is called with the number of texts after each batch.
    """
    if batch < 1:
        raise Problem(f"--batch must be at least 1 sentence, not {batch}.")
    selector = _CountingSelector(selector, advance)
    start, truncated = 0, 0
    for window in cut_windows(texts, batch):
        indices = range(start, start + len(window))
        start += len(window)
        if indices.stop <= done:
            continue
        request = GenerationRequest(
            window,
            seed=seed,
            indices=indices,
            trace=trace,
            selector=selector,
            n=n,
            floor=floor,
            overrides=overrides,
        )
        (output,) = model.generate_together([request], batch=batch)
        generated = split_output(output, n=n)
        yield from islice(generated, max(0, done - indices.start), None)
        truncated += output.truncated
    if not start:
        show_line("The input is empty, so there is nothing to write.")
    if truncated:
        show_line(
            f"{truncated:,} of {start:,} inputs had more than {model.max_source} tokens and were truncated."
        )


def split_output(output: GenerationOutput, *, n: int) -> list[GeneratedText]:
    """The output of each text; it has alternatives if more than one text was asked for."""
    alternatives = output.alternatives if n > 1 else [[] for _ in output.texts]
    fields = (output.texts, output.candidates, output.scores, output.traces, alternatives)
    return list(map(GeneratedText, *fields))


@dataclass(frozen=True)
class _CountingSelector:
    """Another selector, which reports how many sentences it has selected for."""

    selector: Selector
    advance: Callable[[int], None]

    @property
    def signature(self) -> str:
        return self.selector.signature

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        return self.select_all([candidates])[0]

    def select_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        selected = self.selector.select_all(sentences)
        self.advance(len(sentences))
        return selected
