"""`Model`, the base class of all models: it turns texts into texts.

    texts → tokens → batches of similar lengths → decoder → candidates → selector → texts

The output has the order of the input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Self

import torch
from torch import nn

from noise2text.core.config import apply_overrides
from noise2text.core.devices import find_dtype
from noise2text.core.errors import Problem
from noise2text.data.layouts.base import Layout
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.candidates import Decoder, SentenceCandidates, SourceBatch
from noise2text.generation.runner import EAGER, Runner
from noise2text.generation.selection import Candidate, Selector
from noise2text.models.accelerate import is_quantized, make_graph_runner, prepare_for_inference, run_stages

__all__ = [
    "GenerationOutput",
    "Model",
    "TraceStep",
    "device_guard",
    "require_lists",
]


@dataclass(frozen=True)
class TraceStep:
    """One step of generating a text: the time, and the noisy canvas and the clean estimate as text."""

    time: float
    noisy: str
    text: str


@dataclass
class GenerationOutput:
    """The texts that a model generated, in the order of the input.

    Fields:
        texts: the selected text of each input.
        candidates: all candidates of each input.
        scores: the score of each candidate, for most models the mean log-probability of its tokens.
        traces: the steps to each text, with `trace=True`.
        truncated: the number of inputs that were too long for the model and were truncated.

    >>> import noise2text
    >>> model = noise2text.load("de-en", device="cpu", precision="float32")
    >>> output = model.generate(["Ich habe zwei Brüder.", ""], length_beam=3, noise_beam=2, trace=True)
    >>> output.texts
    ['I have two brothers.', '']
    >>> [len(candidates) for candidates in output.candidates]
    [6, 0]
    >>> output.traces[0][-1].text
    'I have two brothers.'
    """

    texts: list[str] = field(default_factory=list)
    candidates: list[list[str]] = field(default_factory=list)
    scores: list[list[float]] = field(default_factory=list)
    traces: list[list[TraceStep]] = field(default_factory=list)
    truncated: int = 0

    @classmethod
    def empty(cls, count: int, *, truncated: int = 0) -> Self:
        """Output for `count` inputs, with empty texts that are filled in later."""
        candidates: list[list[str]] = [[] for _ in range(count)]
        scores: list[list[float]] = [[] for _ in range(count)]
        traces: list[list[TraceStep]] = [[] for _ in range(count)]
        return cls([""] * count, candidates, scores, traces, truncated)


class Model(nn.Module, ABC):
    """A model that turns texts into texts; `noise2text.load` and `noise2text.train` return one.

    A recipe's model is a `DiffusionModel`, a `LengthPredictingModel`, an `AutoregressiveModel`, or a subclass
    that builds a decoder and a selector of its own for a generation config.

    Attributes:
        tokenizer: the `Tokenizer` of its texts.
        layout: how pairs lie on its canvas, a `Layout`.
        generation_config: the settings that `generate` takes by name, with this model's defaults.
        max_source: the longest source in tokens; longer ones are truncated.

    >>> import noise2text
    >>> model = noise2text.load("de-en", device="cpu", precision="float32")
    >>> model.generate(["Wo ist der Bahnhof?"], steps=10, select="score", seed=1).texts
    ['Where is the train station?']
    >>> model.generation_config.length_beam
    5
    """

    tokenizer: Tokenizer
    layout: Layout
    generation_config: Any  # a frozen dataclass, one class per family of models
    max_source: int

    def __init__(self) -> None:
        super().__init__()
        self.use_cuda_graphs = True  # whether generation uses CUDA graphs on a GPU
        self._cuda_graphs: Runner | None = None

    @property
    def device(self) -> torch.device:
        """The device of the weights and buffers; the CPU if there are none."""
        return next(chain(self.parameters(), self.buffers()), torch.empty(0)).device

    @property
    def quantizable_module(self) -> nn.Module | None:
        """The part that may become int8, since its later steps correct small errors; None without one."""
        return None

    def resolve_precision(self, requested_precision: str) -> str:
        """The requested precision, but float32 for `auto` where rounding would change the texts."""
        return requested_precision

    def move_to(self, device: torch.device, precision: str) -> Self:
        """This model on the device, with weights of this precision; int8 layers stay int8."""
        precision = self.resolve_precision(precision)
        if device.type != "cpu" and is_quantized(self):
            raise Problem(f"This model was quantized to int8 for a CPU: load it again for {device}.")
        moved = self.to(device, dtype=find_dtype(precision, device))
        prepare_for_inference(moved, moved.quantizable_module, precision, device)
        return moved

    def ensure_eval(self) -> None:
        """Switch all parts to evaluation: an objective puts those that it trains into training mode."""
        if self.training or any(part.training for part in self.children()):
            self.eval()

    @abstractmethod
    def build_decoder(self, config: Any) -> Decoder:
        """The decoder that turns sources into candidates, for this generation config."""

    @abstractmethod
    def build_selector(self, generation_config: Any) -> Selector:
        """The selector that selects one of the candidates of a sentence, for this generation config."""

    def runner(self) -> Runner:
        """How decoders run: with CUDA graphs on a GPU, except under autocast, where weights may move."""
        if self.device.type != "cuda" or torch.is_autocast_enabled() or not self.use_cuda_graphs:
            return EAGER
        if self._cuda_graphs is None:
            self._cuda_graphs = make_graph_runner()
        return self._cuda_graphs

    def generate(
        self,
        texts: Sequence[str],
        *,
        seed: int = 0,
        batch: int = 32,
        indices: Sequence[int] | None = None,
        trace: bool = False,
        selector: Selector | None = None,
        **overrides: Any,
    ) -> GenerationOutput:
        """A text for each text, with its candidates and scores.

        Args:
            texts: the sources; an empty one, or one of spaces, gives an empty text.
            seed: decides the noise, together with the index of a text in the input.
            batch: sentences per batch; it does not change the texts.
            indices: other indices for the noise, one per text.
            trace: whether to return the text at every step.
            selector: selects among the candidates, in place of the one that the generation config names.
            overrides: generation settings by name, such as `steps=10`.
        """
        require_lists("generate", texts)
        if batch < 1:
            raise Problem(f"The argument batch must be at least 1 sentence, not {batch}.")
        if indices is not None and len(indices) != len(texts):
            raise Problem(f"Give one index for each of {len(texts)} texts in indices, not {len(indices)}.")
        self.ensure_eval()
        config = apply_overrides(self.generation_config, overrides, origin="generate")
        indices = range(len(texts)) if indices is None else indices
        selector = selector or self.build_selector(config)
        rows = self.tokenizer.encode(texts)
        truncated = sum(len(row) > self.max_source for row in rows)
        output = GenerationOutput.empty(len(texts), truncated=truncated)
        nonempty = [i for i, row in enumerate(rows) if row and texts[i].strip()]
        order = sorted(nonempty, key=lambda i: min(len(rows[i]), self.max_source))
        chosen = [order[start : start + batch] for start in range(0, len(order), batch)]
        batches = (
            SourceBatch([rows[i][: self.max_source] for i in each], [indices[i] for i in each])
            for each in chosen
        )
        with device_guard(self.device):
            stages = self.build_decoder(config).stages(seed=seed, trace=trace)
            for each, decoded in zip(chosen, run_stages(batches, stages, self.device), strict=True):
                candidates = self._decode_texts(decoded, [texts[i] for i in each])
                best = selector.select_all(candidates)
                for i, sentence, own, best_index in zip(each, decoded, candidates, best, strict=True):
                    self._store(output, i, sentence, own, best_index)
        return output

    def generate_pairs(
        self,
        count: int,
        *,
        source: str = "",
        target: str = "",
        seed: int = 0,
        batch: int = 32,
        **overrides: Any,
    ) -> list[tuple[str, str]]:
        """`count` pairs of source and target, both generated by the model; templates fix parts of them."""
        raise Problem(
            "This model generates targets, not sources: use a model of pairs, such as diffusion-lm."
        )

    def _decode_texts(
        self, decoded: Sequence[SentenceCandidates], sources: Sequence[str]
    ) -> list[list[Candidate]]:
        texts = iter(self.tokenizer.decode([row for sentence in decoded for row in sentence.tokens]))
        return [
            [
                Candidate(text=next(texts), tokens=tuple(row), score=score, source=source)
                for row, score in zip(sentence.tokens, sentence.scores, strict=True)
            ]
            for sentence, source in zip(decoded, sources, strict=True)
        ]

    def _store(
        self,
        result: GenerationOutput,
        i: int,
        sentence: SentenceCandidates,
        candidates: Sequence[Candidate],
        best: int,
    ) -> None:
        texts = [candidate.text for candidate in candidates]
        result.texts[i], result.candidates[i], result.scores[i] = texts[best], texts, sentence.scores
        if not sentence.steps:
            return
        noisy = self.tokenizer.decode([step.noisy[best] for step in sentence.steps])
        clean = self.tokenizer.decode([step.clean[best] for step in sentence.steps])
        result.traces[i] = [
            TraceStep(step.time, *shown) for step, *shown in zip(sentence.steps, noisy, clean, strict=True)
        ]


def device_guard(device: torch.device) -> AbstractContextManager[Any]:
    """A context in which events, streams and kernels are those of this device, not of the first GPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def require_lists(name: str, *lists: Sequence[str]) -> None:
    """Raise a Problem for lists of unequal lengths, and for a text in place of a list of texts."""
    if any(isinstance(texts, str) for texts in lists):
        raise Problem(f"{name} takes a list of texts: put the one text into a list.")
    if len(set(map(len, lists))) > 1:
        counts = " and ".join(str(len(texts)) for texts in lists)
        raise Problem(f"{name} takes lists of equal lengths, not of {counts} texts.")
