"""`Model`, the base class of all models: it turns texts into texts.

    texts → tokens → batches of similar lengths → decoder → candidates → selector → texts

The output has the order of the input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self, overload

import torch
from torch import Tensor, nn

from noise2text.core.arguments import (
    parse_flag,
    parse_path,
    parse_whole_number,
    require_texts,
)
from noise2text.core.devices import allow_fork, device_guard, find_dtype
from noise2text.core.errors import Problem, is_out_of_memory
from noise2text.core.host_memory import keep_freed_memory
from noise2text.data.layouts.base import Layout
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.alternatives import FLOOR
from noise2text.generation.decoder import Decoder
from noise2text.generation.executor import EAGER, Executor
from noise2text.generation.selection import Selector
from noise2text.generation.selector_registry import SELECTORS, prefer_faithful_copies
from noise2text.models.accelerate import (
    is_quantized,
    make_cuda_graph_executor,
    prepare_for_inference,
    run_stages,
)
from noise2text.models.likelihood_bound import LikelihoodBound
from noise2text.models.output import GenerationOutput
from noise2text.models.preprocessed_requests import preprocess_request
from noise2text.models.progress import show_progress
from noise2text.models.requests import BatchedRequests, GenerationRequest, OnStep, parse_request

__all__ = ["Model", "ModelOrigin", "make_forbidden_mask", "require_lists"]


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
    ["Where's the train station?"]
    >>> model("Guten Morgen."), model(["Guten Morgen.", "Danke."])
    ('Good morning.', ['Good morning.', 'Thank you.'])
    >>> model.generation_config.length_beam
    3
    """

    tokenizer: Tokenizer
    layout: Layout
    generation_config: Any  # a frozen dataclass, one class per family of models
    max_source: int
    why_no_likelihood = (
        "This model has no likelihood: it gives given texts no probability. Use a diffusion model or an "
        "autoregressive one."
    )

    def __init__(self) -> None:
        super().__init__()
        self.use_cuda_graphs = True  # whether generation uses CUDA graphs on a GPU
        self._own_executor: Executor | None = None
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
        with device_guard(device):  # another thread may be using it
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
        if self._own_executor is not None:
            return self._own_executor
        if self.device.type != "cuda" or torch.is_autocast_enabled() or not self.use_cuda_graphs:
            return EAGER
        if self._cuda_graph_executor is None:
            self._cuda_graph_executor = make_cuda_graph_executor()
        return self._cuda_graph_executor

    def use_executor(self, executor: Executor | None) -> None:
        """Let decoders run with this executor, whatever the device is; None leaves it to the device again."""
        self._own_executor = executor

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

        model = load(name, revision=revision, device=device, precision=precision)
        if not isinstance(model, cls):
            kind = type(model).__name__
            raise Problem(f"The model {name} is a {kind}, no {cls.__name__}: call {kind}.from_pretrained.")
        return model

    def save_pretrained(self, folder: str | Path, *, card: Mapping[str, Any] | None = None) -> None:
        """Write this model and its card (README.md) to a folder, from which `from_pretrained` loads it.

        Args:
            folder: the folder to write.
            card: fields for the head of the card, such as `{"license": "mit", "language": ["de", "en"]}`.
        """
        from noise2text.models.hub import save_model

        save_model(self, parse_path(folder, where="save_pretrained"), card=card)

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
                batch, the texts of the batches before, and "" for those to come. On a GPU it must not wait
                for another thread that generates: one thread at a time uses a GPU.
            progress: whether to show a progress bar, in a terminal or a notebook.
            overrides: generation settings by name, such as `steps=10`.
        """
        request = parse_request(
            texts,
            seed=seed,
            indices=indices,
            trace=trace,
            selector=selector,
            n=n,
            floor=floor,
            on_step=on_step,
            overrides=overrides,
        )
        batch = parse_whole_number(batch, "batch", where="generate")
        progress = parse_flag(progress, "progress", where="generate")
        return self.generate_together([request], batch=batch, progress=progress)[0]

    def generate_together(
        self, requests: Sequence[GenerationRequest], *, batch: int = 32, progress: bool = False
    ) -> list[GenerationOutput]:
        """What `generate` returns for each request alone; their texts share batches where they can.

        Args:
            requests: texts, each with the seed and the settings of their request.
            batch: texts per batch; it does not change the texts, and is halved where they do not fit into
                the memory.
            progress: whether to show a progress bar, in a terminal or a notebook.
        """
        allow_fork()
        if self.device.type == "cpu":
            keep_freed_memory()
        if any(part.training for part in (self, *self.children())):  # an objective trains some parts
            self.eval()
        preprocessed = [preprocess_request(self, request) for request in requests]
        with device_guard(self.device):  # a decoder may load a classifier to it
            batched = BatchedRequests(self, [each.request for each in preprocessed], batch=batch)
        bar = show_progress(batched.num_texts, "texts") if progress else nullcontext(lambda count: None)
        with device_guard(self.device), bar as advance:
            while groups := batched.groups:
                try:
                    for group in groups:
                        decoded = run_stages(group.inputs, group.stages, self.device)
                        for parts, candidates in zip(group.batches, decoded, strict=True):
                            advance(batched.select(parts, candidates))
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error) or not batched.halve_batches():
                        raise
        return [each.join(output) for each, output in zip(preprocessed, batched.outputs, strict=True)]

    def likelihood_bound(
        self,
        texts: Sequence[str],
        targets: Sequence[str],
        *,
        samples: int = 32,
        steps: int | None = None,
        seed: int = 0,
        batch: int = 32,
        **overrides: Any,
    ) -> LikelihoodBound:
        """How likely the model finds the targets: −log p in nats per token from above, term by term.

        It is exact for autoregressive models, the variational bound for diffusion models, and a Problem for
        models without either. A text that is too long is truncated, as by `generate`.

        Args:
            texts: the sources.
            targets: a target for each source.
            samples: how many of the steps of diffusion are evaluated per pair, spread over time.
            steps: the steps of diffusion, all T of training by default; fewer give a looser bound.
            seed: decides the noise and the steps that are evaluated.
            batch: pairs per batch; it does not change the numbers.
            overrides: generation settings by name, such as `sampling_noise_factor=2.0`.
        """
        raise Problem(self.why_no_likelihood)

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


def make_forbidden_mask(tokenizer: Tokenizer, *, allowed: Iterable[int] = ()) -> Tensor:
    """True for the special tokens that are no part of a text, (V,); the allowed ones are."""
    mask = torch.zeros(len(tokenizer), dtype=torch.bool)
    mask[sorted(tokenizer.special_tokens - set(allowed))] = True
    return mask


def require_lists(name: str, *lists: Sequence[str]) -> None:
    """Raise a Problem for lists of unequal lengths, and for what is no list of texts."""
    for texts in lists:
        require_texts(texts, where=name)
    if len(set(map(len, lists))) > 1:
        counts = " and ".join(str(len(texts)) for texts in lists)
        raise Problem(f"{name} takes lists of equal lengths, not of {counts} texts.")
