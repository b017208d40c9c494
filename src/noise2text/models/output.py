"""What `Model.generate` returns: the texts in the order of the input, with candidates, scores and steps.

Outputs show themselves in a notebook, which calls `_repr_html_`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, overload

from noise2text.models.output_html import render_outputs

__all__ = ["GenerationOutput", "TextOutput", "TraceStep"]

_LISTS = ("candidates", "scores", "lengths", "traces", "drafts", "utilities", "alternatives", "warnings")


@dataclass(frozen=True)
class TraceStep:
    """One step of generating a text: the time, and the noisy canvas and the clean estimate as texts.

    It is made from a `TokenTraceStep` of the decoder.

    Fields:
        time: from 1 (noise) down to 0 (text).
        noisy: the noisy canvas, each position as its nearest token.
        text: the clean estimate.
        noisy_tokens: the tokens of the noisy canvas, each as text; a space belongs to the word after it.
        tokens: the tokens of the estimate.
        confidence: the probability of each token of the estimate, 1 for a given one; empty for models that
            write one token after another.
    """

    time: float
    noisy: str
    text: str
    noisy_tokens: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    confidence: tuple[float, ...] = ()


@dataclass(frozen=True)
class TextOutput:
    """What a model generated for one input.

    Fields:
        text: the selected text.
        candidates: all candidates.
        scores, lengths: the score and the number of tokens of each candidate.
        chosen: the index of the selected candidate; None without candidates.
        trace: the steps to the text, with `trace=True`.
        alternatives: different texts, best first, of which `text` is the first; as many as `n` asked for.
        warnings: what may be wrong with the input, such as another language.

    >>> import noise2text
    >>> model = noise2text.load("de-en", device="cpu", precision="float32")
    >>> first = model.generate(["Ich habe zwei Brüder."])[0]
    >>> first.text, first.candidates[first.chosen]
    ('I have two brothers.', 'I have two brothers.')
    >>> first
    TextOutput('I have two brothers.', 3 candidates)
    """

    text: str
    candidates: list[str]
    scores: list[float]
    lengths: list[int]
    chosen: int | None
    trace: list[TraceStep]
    alternatives: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        steps = f", {len(self.trace)} steps" if self.trace else ""
        return f"TextOutput({self.text!r}, {len(self.candidates)} candidates{steps})"

    def _repr_html_(self) -> str:
        return render_outputs([self], total=1)


@dataclass
class GenerationOutput:
    """The texts that a model generated, in the order of the input.

    Fields:
        texts: the selected text of each input.
        candidates: all candidates of each input.
        scores: the score of each candidate, for most models the mean log-probability of its tokens.
        lengths: the number of tokens of each candidate.
        chosen: the index of the selected candidate of each input; None for one without candidates.
        traces: the steps to each text, with `trace=True`.
        drafts: the text of each candidate of each input at every step, with `trace=True`.
        utilities: how well each candidate (row) agrees with each (column), with `trace=True` and a selector
            that compares them, such as MBR; the candidate with the highest row mean is selected.
        alternatives: different texts for each input, best first, at most `n` (`generate(n=5)`).
        warnings: what may be wrong with each input, with the preprocessing step `language`.
        truncated: the number of inputs that were too long for the model and were truncated.

    >>> import noise2text
    >>> model = noise2text.load("de-en", device="cpu", precision="float32")
    >>> output = model.generate(["Ich habe zwei Brüder.", ""], length_beam=3, noise_beam=2, trace=True)
    >>> output.texts
    ['I have two brothers.', '']
    >>> [len(candidates) for candidates in output.candidates]
    [6, 0]
    >>> output.candidates[0][output.chosen[0]]
    'I have two brothers.'
    >>> output.traces[0][-1].text
    'I have two brothers.'

    It is also a sequence with one `TextOutput` per input, and shows itself in a notebook.

    >>> output[0].text, len(output), [each.text for each in output]
    ('I have two brothers.', 2, ['I have two brothers.', ''])
    >>> output
    GenerationOutput(['I have two brothers.', ''])
    """

    texts: list[str] = field(default_factory=list)
    candidates: list[list[str]] = field(default_factory=list)
    scores: list[list[float]] = field(default_factory=list)
    lengths: list[list[int]] = field(default_factory=list)
    chosen: list[int | None] = field(default_factory=list)
    traces: list[list[TraceStep]] = field(default_factory=list)
    drafts: list[list[list[str]]] = field(default_factory=list)
    utilities: list[list[list[float]]] = field(default_factory=list)
    alternatives: list[list[str]] = field(default_factory=list)
    warnings: list[list[str]] = field(default_factory=list)
    truncated: int = 0

    @classmethod
    def empty(cls, count: int, *, truncated: int = 0) -> GenerationOutput:
        """An output for this many inputs, without texts or candidates."""
        empty: dict[str, list[Any]] = {name: [[] for _ in range(count)] for name in _LISTS}
        return cls(texts=[""] * count, chosen=[None] * count, truncated=truncated, **empty)

    def append_from(self, other: GenerationOutput, index: int) -> None:
        """Append all that another output has for one of its inputs."""
        for name in ("texts", "chosen", *_LISTS):
            getattr(self, name).append(getattr(other, name)[index])

    def __len__(self) -> int:
        return len(self.texts)

    def __bool__(self) -> bool:
        return True  # an output of no inputs is an output, too

    def __iter__(self) -> Iterator[TextOutput]:
        return map(self.__getitem__, range(len(self)))

    @overload
    def __getitem__(self, index: int) -> TextOutput: ...

    @overload
    def __getitem__(self, index: slice) -> list[TextOutput]: ...

    def __getitem__(self, index: int | slice) -> TextOutput | list[TextOutput]:
        if isinstance(index, slice):
            return list(map(self.__getitem__, range(len(self))[index]))
        return TextOutput(
            text=self.texts[index],
            candidates=self.candidates[index],
            scores=self.scores[index],
            lengths=self.lengths[index],
            chosen=self.chosen[index],
            trace=self.traces[index],
            alternatives=self.alternatives[index] if self.alternatives else [],
            warnings=self.warnings[index] if self.warnings else [],
        )

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.texts[:3]))
        more = f", … {len(self):,} texts" if len(self) > 3 else ""
        return f"GenerationOutput([{shown}{more}])"

    def _repr_html_(self) -> str:
        return render_outputs(self, total=len(self))
