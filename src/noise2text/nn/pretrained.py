"""Models of the transformers library as writers, so that all that is done with writers is done with them.

    causal       p(yᵢ | x, [BOS], y₁ … yᵢ₋₁): source and target are one line; memory is the source's past
    sequence     p(yᵢ | encoder(x), y₁ … yᵢ₋₁): memory is what the encoder says

A source is padded on its right, and a target's positions go on from the source's own end, so neither the
batch nor the padding changes a text. The notebook is the library's own cache of keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from noise2text.core.errors import Problem
from noise2text.data.layouts.canvas import Source
from noise2text.nn.denoiser import Memory
from noise2text.nn.incremental_decoder import Writer

__all__ = ["CausalModel", "Past", "SequenceModel", "keeps_past", "library", "remember"]


def library() -> Any:
    """The transformers library."""
    try:
        import transformers
    except ImportError as error:
        raise Problem(
            "Pre-trained models need the package transformers; install noise2text[pretrained]."
        ) from error
    return transformers


@torch.no_grad()
def keeps_past(model: Any) -> bool:
    """Whether a decoder alone hands out the keys and values of what it has read."""
    if model.device.type == "meta":
        return True  # there are no weights to try it with
    learns = model.training
    made = model.eval().base_model(input_ids=torch.zeros(1, 1, dtype=torch.long), use_cache=True)
    model.train(learns)
    layers = getattr(getattr(made, "past_key_values", None), "layers", ())
    return bool(layers) and all(getattr(layer, "keys", None) is not None for layer in layers)


@dataclass(frozen=True)
class Past:
    """The library's cache of a batch's hypotheses, and what of their sources they may look at."""

    cache: Any
    seen: Tensor  # (B·K, …)
    first: Tensor  # (B·K, 1), where the target's positions begin
    states: Tensor  # (B·K, S, W), of an encoder


class _Foreign(Writer):
    """A model of the library that scores the first `size` of its tokens, those that the tokenizer has."""

    recordable = False

    def __init__(self, model: nn.Module, *, size: int) -> None:
        super().__init__()
        self.model, self.size = model, size

    def reorder(self, notebook: Past, parents: Tensor) -> None:
        rows = torch.arange(len(parents), device=parents.device)[:, None] * parents.shape[1]
        notebook.cache.reorder_cache((rows + parents).flatten())


class CausalModel(_Foreign):
    """A decoder alone, such as GPT-2: it goes on from the source, [BOS] being what stands between."""

    undivided = True  # keys leave a layer by the cache: sharded, gradients would come back unnoticed

    def read(self, source: Source) -> Memory:
        body: Any = self.model.base_model
        made = body(input_ids=source.tokens, attention_mask=(~source.padding).long(), use_cache=True)
        layers = made.past_key_values.layers
        keys, values = (
            torch.stack([getattr(layer, name) for layer in layers]) for name in ("keys", "values")
        )
        return Memory(made.last_hidden_state, source.padding, keys, values)

    def forward(self, tokens: Tensor, memory: Memory) -> Tensor:
        past = self.begin(memory, 1, length=tokens.shape[1])
        places = past.first + torch.arange(tokens.shape[1], device=tokens.device)
        return self._scores(tokens, places, past, past.seen)

    def begin(self, memory: Memory, hypotheses: int, *, length: int) -> Past:
        cache = library().DynamicCache()
        for layer, pair in enumerate(zip(memory.keys, memory.values, strict=True)):
            cache.update(*(each.repeat_interleave(hypotheses, dim=0) for each in pair), layer)
        source = ~memory.padding
        seen = torch.cat([source, source.new_ones(len(source), length)], dim=1)
        seen, first = (
            each.repeat_interleave(hypotheses, dim=0) for each in (seen, source.sum(1, keepdim=True))
        )
        return Past(cache, seen, first, memory.states)

    def step(
        self, tokens: Tensor, position: Tensor, notebook: Past, memory: Memory, *, visible: int
    ) -> Tensor:
        seen = notebook.seen[:, : notebook.cache.get_seq_length() + 1]
        logits = self._scores(tokens.reshape(-1, 1), notebook.first + position, notebook, seen)
        return logits.view(*tokens.shape, -1)

    def _scores(self, tokens: Tensor, places: Tensor, past: Past, seen: Tensor) -> Tensor:
        made = self.model(
            input_ids=tokens,
            attention_mask=seen.long(),
            position_ids=places,
            past_key_values=past.cache,
            use_cache=True,
        )
        return made.logits[..., : self.size]


class SequenceModel(_Foreign):
    """An encoder and a decoder, such as T5, BART or Marian."""

    def __init__(self, model: nn.Module, *, size: int, opening: Sequence[int] = ()) -> None:
        """`opening` is what the decoder is used to see before the first token."""
        super().__init__(model, size=size)
        self.opening = tuple(opening)

    @property
    def width(self) -> int:
        """The size of the encoder's states."""
        config: Any = self.model.config
        return int(config.hidden_size)

    def read(self, source: Source) -> Memory:
        encoder: Any = self.model.get_encoder()  # type: ignore[operator]
        made = encoder(input_ids=source.tokens, attention_mask=(~source.padding).long())
        return remember(made.last_hidden_state, source.padding)

    def forward(self, tokens: Tensor, memory: Memory) -> Tensor:
        tokens = torch.cat([self._opening(tokens), tokens], dim=1)
        logits = self._scores(tokens, memory.states, ~memory.padding, None)
        return logits[:, len(self.opening) :]

    def begin(self, memory: Memory, hypotheses: int, *, length: int) -> Past:
        transformers = library()
        cache = transformers.EncoderDecoderCache(transformers.DynamicCache(), transformers.DynamicCache())
        states, seen = (
            each.repeat_interleave(hypotheses, dim=0) for each in (memory.states, ~memory.padding)
        )
        past = Past(cache, seen, seen.new_zeros(len(seen), 1, dtype=torch.long), states)
        if self.opening:
            self._scores(self._opening(past.first), states, seen, cache)
        return past

    def step(
        self, tokens: Tensor, position: Tensor, notebook: Past, memory: Memory, *, visible: int
    ) -> Tensor:
        logits = self._scores(tokens.reshape(-1, 1), notebook.states, notebook.seen, notebook.cache)
        return logits.view(*tokens.shape, -1)

    def _opening(self, tokens: Tensor) -> Tensor:
        """The opening of each row, (B, few)."""
        return torch.tensor(self.opening, dtype=torch.long, device=tokens.device).expand(len(tokens), -1)

    def _scores(self, tokens: Tensor, states: Tensor, seen: Tensor, cache: Any) -> Tensor:
        made = self.model(
            encoder_outputs=library().modeling_outputs.BaseModelOutput(last_hidden_state=states),
            attention_mask=seen.long(),
            decoder_input_ids=tokens,
            past_key_values=cache,
            use_cache=cache is not None,
        )
        return made.logits[..., : self.size]


def remember(states: Tensor, padding: Tensor) -> Memory:
    """A memory of encoder states alone; the library's decoders make their keys and values themselves."""
    nothing = states.new_zeros(0)
    return Memory(states, padding, nothing, nothing)
