"""Generate texts for a stream of inputs, window by window, in the order of the input."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem
from noise2text.generation.likelihood import LikelihoodSelector, require_reduction
from noise2text.generation.selection import Selector, WithoutCopies
from noise2text.models import AutoregressiveModel, Model, TraceStep
from noise2text.models.folder import load

__all__ = ["GeneratedText", "build_selector", "generate_texts", "require_teacher"]

WINDOW = 16  # batches that are sorted by length together


@dataclass(frozen=True)
class GeneratedText:
    """A generated text, its candidates and, if requested, its text at each step."""

    text: str
    candidates: list[str]
    scores: list[float]
    trace: list[TraceStep]

    def as_text(self) -> str:
        """The text on one line, with spaces for line breaks."""
        return re.sub(r"[\r\n]+", " ", self.text.rstrip("\r\n"))

    def as_json(self) -> str:
        """The text, its candidates and any trace as a line of JSON Lines, which `evaluate` reads."""
        pairs = zip(self.candidates, self.scores, strict=True)
        finite = ((text, score if math.isfinite(score) else None) for text, score in pairs)  # JSON has no ∞
        candidates = [{"text": text, "score": score} for text, score in finite]
        trace = (
            {"trace": [{"time": step.time, "text": step.text} for step in self.trace]} if self.trace else {}
        )
        return json.dumps({"text": self.text, "candidates": candidates} | trace, ensure_ascii=False)


def build_selector(
    model: Model,
    overrides: dict[str, str],
    teacher: Path | None,
    *,
    reduction: str,
    device: str | None,
    precision: str,
    copies: bool = True,
) -> Selector:
    """The teacher, if `--select teacher` asks for it (and is removed from `overrides`), or the model's own.

    Without `copies`, candidates that copy their source are left out.
    """
    teacher_selector = _load_teacher(
        overrides, teacher, reduction=reduction, device=device, precision=precision
    )
    selector = teacher_selector or model.build_selector(
        apply_overrides(model.generation_config, overrides, origin="generate")
    )
    return selector if copies else WithoutCopies(selector)


def require_teacher(overrides: Mapping[str, Any], teacher: Path | None, *, reduction: str) -> None:
    """Raise a Problem if only one of --select teacher and --teacher is given."""
    if (overrides.get("select") == "teacher") != (teacher is not None):
        raise Problem("To select by a teacher, give both --select teacher and --teacher DIR.")
    if teacher is None and reduction != "mean":
        raise Problem(
            "--likelihood is an option of the teacher: also give --select teacher and --teacher DIR."
        )
    require_reduction(reduction)


def _load_teacher(
    overrides: dict[str, str], teacher: Path | None, *, reduction: str, device: str | None, precision: str
) -> Selector | None:
    require_teacher(overrides, teacher, reduction=reduction)
    if teacher is None:
        return None
    del overrides["select"]
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
    selector: Selector | None = None,
    show_line: Callable[[str], None],
) -> Iterator[GeneratedText]:
    """One generated text per input."""
    if batch < 1:
        raise Problem(f"--batch must be at least 1 sentence, not {batch}.")
    stream, start, truncated = iter(texts), 0, 0
    while window := list(islice(stream, batch * WINDOW)):
        indices = range(start, start + len(window))
        output = model.generate(
            window, seed=seed, batch=batch, indices=indices, trace=trace, selector=selector, **overrides
        )
        texts_and_candidates = zip(output.texts, output.candidates, output.scores, output.traces, strict=True)
        for text, candidates, scores, steps in texts_and_candidates:
            yield GeneratedText(text, candidates, scores, steps)
        start, truncated = start + len(window), truncated + output.truncated
    if not start:
        show_line("The input is empty, so there is nothing to write.")
    if truncated:
        show_line(
            f"{truncated:,} of {start:,} inputs had more than {model.max_source} tokens and were truncated."
        )
