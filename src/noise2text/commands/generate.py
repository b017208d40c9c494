"""Generate texts: for a list at once, or for a stream, window by window, in the order of the input."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from noise2text.commands.generation_job import LoadedJob
from noise2text.commands.input_texts import CutWindows, growing_windows
from noise2text.generation.selection import Candidate, Selector
from noise2text.models import Model, TraceStep
from noise2text.models.folder import load
from noise2text.models.output import GenerationOutput
from noise2text.models.requests import GenerationRequest

__all__ = [
    "GeneratedText",
    "describe_guidance",
    "generate",
    "generate_texts",
    "split_output",
]

GUIDED_TEXTS_COMPARED = 8


def generate(
    model: str | Path | Model,
    texts: Sequence[str],
    *,
    device: str | torch.device | None = None,
    precision: str = "auto",
    **options: Any,
) -> GenerationOutput:
    """The text that a model generates for each text, with all candidates and their scores.

    Args:
        model: a loaded model, the folder of one, or the name of a shipped one. To use a model more than once,
            load it with `noise2text.load`.
        texts: the sources, such as the sentences to translate.
        device, precision: as for `noise2text.load`; a loaded model stays where it is.
        options: those of `Model.generate`: `seed`, `batch`, `trace`, and every generation setting of the
            model by its name, such as `steps`, `length_beam` or `select`.

    Returns:
        A `GenerationOutput`, in the order of the texts.

    >>> from noise2text import generate
    >>> generate("de-en", ["Wo ist der Bahnhof?"], device="cpu", precision="float32").texts
    ["Where's the train station?"]
    """
    if not isinstance(model, Model):
        model = load(model, device=device, precision=precision)
    return model.generate(texts, **options)


@dataclass(frozen=True)
class GeneratedText:
    """A generated text, its candidates and, if requested, its text at each step."""

    text: str
    candidates: list[str]
    scores: list[float]
    trace: list[TraceStep]
    alternatives: list[str] = field(default_factory=list)  # with the text, if more than one was asked for
    warnings: list[str] = field(default_factory=list)  # about the input, such as another language

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
        warned = {"warnings": self.warnings} if self.warnings else {}
        return {"text": self.text} | more | {"candidates": candidates} | trace | warned


def generate_texts(
    loaded: LoadedJob,
    texts: Iterable[str],
    *,
    show_line: Callable[[str], None],
    cut_windows: CutWindows = growing_windows,
    done: int = 0,
    advance: Callable[[int], None] = lambda count: None,
) -> Iterator[GeneratedText]:
    """One generated text per input; the first `done` of them are left out, for a job that is resumed.

    `advance` is called with the number of texts after each batch.
    """
    model, batch = loaded.model, loaded.job.batch
    start, truncated = 0, 0
    warnings, different = _WarningCounts(), _DifferentTexts(loaded.job.n)
    for window in cut_windows(texts, batch):
        indices = range(start, start + len(window))
        start += len(window)
        if indices.stop <= done:
            continue
        progress = _WindowProgress(len(window), advance)
        selector = _CountingSelector(loaded.selector, progress.add)
        request = loaded.make_request(window, indices, selector=selector)
        (output,) = model.generate_together([request], batch=batch)
        progress.finish()
        warnings.add(output.warnings, start=indices.start)
        if loaded.settings.get("guide") and not indices.start:
            plain = replace(request, texts=window[:GUIDED_TEXTS_COMPARED], selector=loaded.selector)
            show_line(describe_guidance(model, plain, output.texts))
        generated = split_output(output, n=loaded.job.n)
        different.add(window, generated)
        yield from islice(generated, max(0, done - indices.start), None)
        truncated += output.truncated
    if not start:
        show_line("The input is empty, so there is nothing to write.")
    for line in warnings.lines():
        show_line(line)
    for line in different.lines(model.generation_config):
        show_line(line)
    if truncated:
        show_line(
            f"{truncated:,} of {start:,} inputs had more than {model.max_source} tokens and were truncated."
        )


def split_output(output: GenerationOutput, *, n: int) -> list[GeneratedText]:
    """The output of each text; it has alternatives if more than one text was asked for."""
    alternatives = output.alternatives if n > 1 else [[] for _ in output.texts]
    warnings = output.warnings or [[] for _ in output.texts]
    fields = (output.texts, output.candidates, output.scores, output.traces, alternatives, warnings)
    return list(map(GeneratedText, *fields))


def describe_guidance(model: Model, request: GenerationRequest, guided: Sequence[str]) -> str:
    """How many of a request's texts classifier guidance changed: they are generated again without it."""
    unguided = {**request.overrides, "guide": "", "guide_class": ""}
    indices = None if request.indices is None else request.indices[: len(request.texts)]
    (plain,) = model.generate_together([replace(request, overrides=unguided, indices=indices, trace=False)])
    changed = sum(a != b for a, b in zip(plain.texts, guided, strict=False))
    found = f"Classifier guidance changed {changed} of the first {len(plain.texts)} texts."
    if 2 * changed >= len(plain.texts):
        return found
    return (
        f"{found} A model that follows its source closely leaves it little room: try a larger --guide-rate "
        f"or --guide-steps, or a smaller --fluency."
    )


@dataclass
class _WindowProgress:
    """Reports the texts of a window as done: at most all of them, since a text may be several sentences."""

    remaining: int
    advance: Callable[[int], None]

    def add(self, sentences: int) -> None:
        """Report so many sentences as texts."""
        count = min(sentences, self.remaining)
        self.remaining -= count
        self.advance(count)

    def finish(self) -> None:
        """Report the texts that are left, such as empty ones."""
        self.add(self.remaining)


@dataclass
class _WarningCounts:
    """Each warning about inputs, with the number of its first input and how many it is about."""

    found: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, warnings: Sequence[Sequence[str]], *, start: int) -> None:
        """Count the warnings about the inputs from `start` on."""
        for number, own in enumerate(warnings, start + 1):
            for warning in own:
                first, count = self.found.get(warning, (number, 0))
                self.found[warning] = (first, count + 1)

    def lines(self) -> Iterator[str]:
        """One line per warning."""
        for warning, (first, count) in self.found.items():
            more = f" (and {count - 1:,} more)" if count > 1 else ""
            yield f"Input {first:,}{more}: {warning}"


@dataclass
class _DifferentTexts:
    """How many inputs have fewer different texts than were asked for."""

    asked: int
    inputs: int = 0
    found: list[int] = field(default_factory=list)  # the numbers of texts of inputs that have too few

    def add(self, sources: Sequence[str], generated: Sequence[GeneratedText]) -> None:
        """Count the texts of some inputs; one without words has none."""
        for source, each in zip(sources, generated, strict=True):
            self.inputs += 1
            if self.asked > 1 and source.strip() and len(each.alternatives) < self.asked:
                self.found.append(len(each.alternatives))

    def lines(self, config: Any) -> Iterator[str]:
        """One line, if there are such inputs: which of the model's settings give more texts."""
        if not self.found:
            return
        fewest = f"{min(self.found):,}"
        few = f"{len(self.found):,} of {self.inputs:,} inputs have fewer than {self.asked:,} different texts"
        texts = "are {} different texts" if min(self.found) > 1 else "is {} text"
        found = f"There {texts.format(fewest)}, not {self.asked:,}"
        settings = [f"--{name.replace('_', '-')}" for name in _MORE_TEXTS if hasattr(config, name)]
        more = f"try a larger {' or '.join(['--floor', *settings])}" if settings else "this model has no more"
        yield f"{found if self.inputs == 1 else f'{few}; one has {fewest}'}; {more}."


_MORE_TEXTS = ("length_beam", "noise_beam", "beam", "samples")
"""The settings that give more candidates, of all families of models."""


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
