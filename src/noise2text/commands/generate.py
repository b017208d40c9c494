"""Generation over a stream of texts: a window at a time, in the order of the input."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from noise2text.core.config import change
from noise2text.core.errors import Problem
from noise2text.generation.likelihood import Likelihood, require_likelihood
from noise2text.generation.selection import Novel, Selector
from noise2text.models import Autoregressive, Stop, System
from noise2text.models.folder import load

__all__ = ["Line", "choose_selector", "generate_lines", "require_teacher"]

WINDOW = 16  # batches that are packed by length together


@dataclass(frozen=True)
class Line:
    """One answer, what it was chosen from, and its text at each time on the way if that was asked for."""

    text: str
    candidates: list[str]
    scores: list[float]
    trace: list[Stop]

    def as_text(self) -> str:
        """The answer on one line: where it breaks, there are spaces."""
        return re.sub(r"[\r\n]+", " ", self.text.rstrip("\r\n"))

    def as_json(self) -> str:
        """The answer, its candidates and any trace as a line of JSON Lines, which `evaluate` reads."""
        pairs = zip(self.candidates, self.scores, strict=True)
        finite = ((text, score if math.isfinite(score) else None) for text, score in pairs)  # JSON has no ∞
        candidates = [{"text": text, "score": score} for text, score in finite]
        trace = (
            {"trace": [{"time": stop.time, "text": stop.text} for stop in self.trace]} if self.trace else {}
        )
        return json.dumps({"text": self.text, "candidates": candidates} | trace, ensure_ascii=False)


def choose_selector(
    system: System,
    settings: dict[str, str],
    teacher: Path | None,
    *,
    by: str,
    device: str | None,
    precision: str,
    copies: bool = True,
) -> Selector:
    """The teacher that `--select teacher` asks for, which is taken out of the settings, or the system's own.

    Without `copies` it is not shown candidates that are their source again.
    """
    judge = _teacher(settings, teacher, by=by, device=device, precision=precision)
    chosen = judge or system.selector(change(system.how, settings, where="generate"))
    return chosen if copies else Novel(chosen)


def require_teacher(settings: Mapping[str, Any], teacher: Path | None, *, by: str) -> None:
    """Refuse half of what it takes to select by a teacher."""
    if (settings.get("select") == "teacher") != (teacher is not None):
        raise Problem("To select by a teacher, give both --select teacher and --teacher DIR.")
    if teacher is None and by != "mean":
        raise Problem("The likelihood is a teacher's: give --select teacher and --teacher DIR, too.")
    require_likelihood(by)


def _teacher(
    settings: dict[str, str], teacher: Path | None, *, by: str, device: str | None, precision: str
) -> Selector | None:
    require_teacher(settings, teacher, by=by)
    if teacher is None:
        return None
    del settings["select"]
    # No later steps would mend int8's errors in a teacher.
    own = "auto" if precision == "int8" else precision
    model = load(teacher, device=device, precision=own)
    if not isinstance(model, Autoregressive):
        raise Problem(f"{teacher} is no teacher: name the folder of a transformer or a gru.")
    return Likelihood(model, by=by)


def generate_lines(
    system: System,
    texts: Iterable[str],
    *,
    seed: int,
    batch: int,
    trace: bool,
    settings: Mapping[str, Any],
    selector: Selector | None = None,
    say: Callable[[str], None],
) -> Iterator[Line]:
    """A line for each text."""
    if batch < 1:
        raise Problem(f"The batch must hold at least 1 sentence, not {batch}.")
    stream, place, truncated = iter(texts), 0, 0
    while window := list(islice(stream, batch * WINDOW)):
        places = range(place, place + len(window))
        made = system.generate(
            window, seed=seed, batch=batch, places=places, trace=trace, selector=selector, **settings
        )
        answers = zip(made.texts, made.candidates, made.scores, made.traces, strict=True)
        for text, candidates, scores, steps in answers:
            yield Line(text, candidates, scores, steps)
        place, truncated = place + len(window), truncated + made.truncated
    if not place:
        say("The input holds no line, so there is nothing to write.")
    if truncated:
        say(f"{truncated:,} of {place:,} inputs were longer than {system.max_source} tokens and were cut.")
