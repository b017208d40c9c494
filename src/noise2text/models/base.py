"""`Model`, the base class of all models: it turns texts into texts.

    texts → tokens → batches of similar lengths → decoder → candidates → selector → texts

The output has the order of the input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Self, overload

import torch
from torch import nn

from noise2text.core.config import apply_overrides
from noise2text.core.devices import allow_fork, find_dtype
from noise2text.core.errors import Problem
from noise2text.data.layouts.base import Layout
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.alternatives import FLOOR, draw_enough_candidates, rank_alternatives
from noise2text.generation.decoder import Decoder, SentenceCandidates, SourceBatch, TokenRows
from noise2text.generation.executor import EAGER, Executor
from noise2text.generation.preparation import build_preparation
from noise2text.generation.selection import Candidate, Selector, compare_candidates
from noise2text.generation.selector_registry import SELECTORS, prefer_faithful_copies
from noise2text.models.accelerate import (
    is_quantized,
    make_cuda_graph_executor,
    prepare_for_inference,
    run_stages,
)
from noise2text.models.joining import OnStep, join_outputs, join_steps
from noise2text.models.output import GenerationOutput, TraceStep
from noise2text.models.progress import show_progress

__all__ = ["Model", "ModelOrigin", "OnStep", "device_guard", "require_lists"]


@dataclass(frozen=True)
class ModelOrigin:
    """Where a model comes from: its recipe and config, its folder, and how many parameters it has there."""

    recipe: str
    config: Any
    folder: Path
    num_parameters: int


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
    >>> model("Guten Morgen."), model(["Guten Morgen.", "Danke."])
    ('Good morning.', ['Good morning.', 'Thank you.'])
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
        self._cuda_graph_executor: Executor | None = None
        self.origin: ModelOrigin | None = None  # None for a model that was not loaded from a folder

    def __repr__(self) -> str:
        num_parameters = sum(parameter.numel() for parameter in self.parameters())
        first = next(self.parameters(), torch.empty(0))
        values = {
            "recipe": self.origin.recipe if self.origin else None,
            "parameters": f"{self.origin.num_parameters if self.origin else num_parameters:,}",
            "vocabulary": f"{len(self.tokenizer):,}",
            "device": self.device,
            "precision": "int8" if is_quantized(self) else str(first.dtype).removeprefix("torch."),
        }
        shown = ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)
        return f"{type(self).__name__}({shown})"

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

    @abstractmethod
    def build_decoder(self, config: Any) -> Decoder:
        """The decoder that turns sources into candidates, for this generation config."""

    def build_selector(self, config: Any) -> Selector:
        """The selector that selects one of the candidates of a sentence, the setting `select`."""
        return prefer_faithful_copies(SELECTORS[config.select](config), config)

    def executor(self) -> Executor:
        """How decoders run: with CUDA graphs on a GPU, except under autocast, where weights may move."""
        if self.device.type != "cuda" or torch.is_autocast_enabled() or not self.use_cuda_graphs:
            return EAGER
        if self._cuda_graph_executor is None:
            self._cuda_graph_executor = make_cuda_graph_executor()
        return self._cuda_graph_executor

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        revision: str | None = None,
        device: str | torch.device | None = None,
        precision: str = "auto",
    ) -> Model:
        """The model of a folder, of a name that comes with the package, or of the hub: `noise2text.load`."""
        from noise2text.models.folder import load

        return load(name, revision=revision, device=device, precision=precision)

    def save_pretrained(self, folder: str | Path, *, card: Mapping[str, Any] | None = None) -> None:
        """Write this model and its card (README.md) to a folder, from which `from_pretrained` loads it.

        Args:
            folder: the folder to write.
            card: fields for the head of the card, such as `{"license": "mit", "language": ["de", "en"]}`.
        """
        from noise2text.models.hub import save_model

        save_model(self, Path(folder), card=card)

    def push_to_hub(
        self,
        name: str,
        *,
        private: bool = False,
        revision: str | None = None,
        token: str | None = None,
        message: str = "Upload a noise2text model",
        card: Mapping[str, Any] | None = None,
    ) -> str:
        """Upload this model and its card to the Hugging Face hub; returns the address.

        Args:
            name: where to, such as "org/name"; the repository is made if there is none.
            private: whether a new repository is private.
            revision: the branch to upload to; by default main.
            token: who uploads; by default whoever has logged in with `hf auth login`.
            message: the message of the commit.
            card: fields for the head of the card, such as `{"license": "mit", "language": ["de", "en"]}`.
        """
        from noise2text.models.hub import push_model

        return push_model(
            self, name, private=private, revision=revision, token=token, message=message, card=card
        )

    @overload
    def __call__(self, texts: str, **options: Any) -> str: ...

    @overload
    def __call__(self, texts: Sequence[str], **options: Any) -> list[str]: ...

    def __call__(self, texts: str | Sequence[str], **options: Any) -> str | list[str]:
        """The text for one text, or the list of texts for a list; the options are those of `generate`."""
        if isinstance(texts, str):
            return self.generate([texts], **options).texts[0]
        return self.generate(texts, **options).texts

    def generate(
        self,
        texts: Sequence[str],
        *,
        seed: int = 0,
        batch: int = 32,
        indices: Sequence[int] | None = None,
        trace: bool = False,
        selector: Selector | None = None,
        n: int = 1,
        floor: float = FLOOR,
        on_step: OnStep | None = None,
        progress: bool = False,
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
            n: how many different texts to return per text, at most, in `alternatives`; above 1, more
                candidates are drawn, unless a beam is set.
            floor: how far the score of an alternative may be below the best candidate's.
            on_step: a function that is called after each denoising step of a batch with the time, from 1
                (noise) to 0 (text), and a list of the texts so far: the first candidate of each text of the
                batch, the texts of the batches before, and "" for those to come.
            progress: whether to show a progress bar, in a terminal or a notebook.
            overrides: generation settings by name, such as `steps=10`.
        """
        require_lists("generate", texts)
        allow_fork()
        if batch < 1:
            raise Problem(f"The argument batch must be at least 1 sentence, not {batch}.")
        if indices is not None and len(indices) != len(texts):
            raise Problem(f"Give one index for each of {len(texts)} texts in indices, not {len(indices)}.")
        if any(part.training for part in (self, *self.children())):  # an objective trains some parts
            self.eval()
        config = apply_overrides(self.generation_config, overrides, origin="generate")
        config = draw_enough_candidates(config, overrides, n=n, floor=floor)
        indices = range(len(texts)) if indices is None else indices
        run = partial(
            self._generate_sources,
            config=config,
            selector=selector or self.build_selector(config),
            seed=seed,
            batch=batch,
            trace=trace,
            n=n,
            floor=floor,
            progress=progress,
        )
        preparation = build_preparation(config, self.tokenizer, self.max_source)
        if preparation is None:
            return run(texts, indices=indices, on_step=on_step)
        prepared = [preparation(text) for text in texts]
        return join_outputs(
            prepared,
            run(
                [segment.source for each in prepared for segment in each.segments],
                indices=[i for i, each in zip(indices, prepared, strict=True) for _ in each.segments],
                on_step=on_step and join_steps(prepared, on_step),
            ),
        )

    def _generate_sources(
        self,
        texts: Sequence[str],
        *,
        config: Any,
        selector: Selector,
        seed: int,
        batch: int,
        indices: Sequence[int],
        trace: bool,
        n: int,
        floor: float,
        on_step: OnStep | None,
        progress: bool,
    ) -> GenerationOutput:
        """A text for each source as it is; the arguments are those of `generate`."""
        rows = self.tokenizer.encode(texts)
        truncated = sum(len(row) > self.max_source for row in rows)
        output = GenerationOutput(
            texts=[""] * len(texts),
            candidates=[[] for _ in texts],
            scores=[[] for _ in texts],
            lengths=[[] for _ in texts],
            chosen=[None] * len(texts),
            traces=[[] for _ in texts],
            drafts=[[] for _ in texts],
            utilities=[[] for _ in texts],
            alternatives=[[] for _ in texts],
            warnings=[[] for _ in texts],
            truncated=truncated,
        )
        nonempty = [i for i, row in enumerate(rows) if row and texts[i].strip()]
        order = sorted(nonempty, key=lambda i: min(len(rows[i]), self.max_source))
        chosen = [order[start : start + batch] for start in range(0, len(order), batch)]
        batches = (
            SourceBatch([rows[i][: self.max_source] for i in each], [indices[i] for i in each], each)
            for each in chosen
        )
        decoder = self.build_decoder(config)
        if on_step is not None:
            decoder = decoder.with_on_step(partial(self._report_step, on_step, output.texts))
        bar = show_progress(len(order), "texts") if progress else nullcontext(lambda count: None)
        with device_guard(self.device), bar as advance:
            stages = decoder.stages(seed=seed, trace=trace)
            for each, decoded in zip(chosen, run_stages(batches, stages, self.device), strict=True):
                candidates = self._decode_texts(decoded, [texts[i] for i in each])
                best = selector.select_all(candidates)
                for i, sentence, own, index in zip(each, decoded, candidates, best, strict=True):
                    output.texts[i], output.chosen[i] = own[index].text, index
                    output.scores[i], output.lengths[i] = sentence.scores, list(map(len, sentence.tokens))
                    output.candidates[i] = [candidate.text for candidate in own]
                    ranked = rank_alternatives(own, index, n=n, floor=floor)
                    output.alternatives[i] = [own[each].text for each in ranked]
                    if trace:
                        output.traces[i] = self._decode_trace(sentence, index)
                        output.drafts[i] = self._decode_drafts(sentence)
                        output.utilities[i] = compare_candidates(selector, own)
                advance(len(each))
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

    def _report_step(
        self, on_step: OnStep, texts: list[str], batch: SourceBatch, time: float, rows: TokenRows
    ) -> None:
        """Update the texts of the batch, and call `on_step` with a copy of all texts."""
        for position, text in zip(batch.positions, self.tokenizer.decode(rows), strict=True):
            texts[position] = text
        on_step(time, list(texts))

    def _decode_trace(self, sentence: SentenceCandidates, index: int) -> list[TraceStep]:
        """The steps of one candidate as texts."""
        split = self.tokenizer.split
        noisy = self.tokenizer.decode([step.noisy[index] for step in sentence.steps])
        clean = self.tokenizer.decode([step.clean[index] for step in sentence.steps])
        return [
            TraceStep(
                time=step.time,
                noisy=noisy_text,
                text=text,
                noisy_tokens=tuple(split(step.noisy[index])),
                tokens=tuple(split(step.clean[index])),
                confidence=tuple(step.confidence[index]) if step.confidence else (),
            )
            for step, noisy_text, text in zip(sentence.steps, noisy, clean, strict=True)
        ]

    def _decode_drafts(self, sentence: SentenceCandidates) -> list[list[str]]:
        """The text of each candidate at every step."""
        decoded = [self.tokenizer.decode(step.clean) for step in sentence.steps]
        return [list(drafts) for drafts in zip(*decoded, strict=True)]


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
