"""Models of the transformers library as autoregressive networks, usable wherever those are.

    decoder only       p(yᵢ | x, [BOS], y₁ … yᵢ₋₁): source and target are one sequence; the encoder output
                       is the source's keys and values
    encoder-decoder    p(yᵢ | encoder(x), y₁ … yᵢ₋₁)

A source is padded on the right, and a target's positions continue from the source's own end, so neither the
batch nor the padding changes a text. The cache is the library's own cache of keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from noise2text.core.errors import Problem
from noise2text.data.layouts.base import Source
from noise2text.nn.autoregressive import AutoregressiveNetwork
from noise2text.nn.denoiser import EncoderOutput

__all__ = [
    "DecoderOnlyModel",
    "EncoderDecoderModel",
    "HuggingFaceCache",
    "import_transformers",
    "returns_kv_cache",
    "states_only_output",
]


def import_transformers() -> Any:
    """The transformers library."""
    try:
        import transformers
    except ImportError as error:
        raise Problem(
            "Pre-trained models need the package transformers; pip install 'noise2text[pretrained]'."
        ) from error
    return transformers


@torch.no_grad()
def returns_kv_cache(model: Any) -> bool:
    """Whether a decoder-only model returns the keys and values of its input."""
    if model.device.type == "meta":
        return True  # there are no weights to try
    was_training = model.training
    outputs = model.eval().base_model(input_ids=torch.zeros(1, 1, dtype=torch.long), use_cache=True)
    model.train(was_training)
    layers = getattr(getattr(outputs, "past_key_values", None), "layers", ())
    return bool(layers) and all(getattr(layer, "keys", None) is not None for layer in layers)


@dataclass(frozen=True)
class HuggingFaceCache:
    """The library's cache of a batch's hypotheses, and which source positions they attend to."""

    past_key_values: Any
    attended: Tensor  # (B·K, …)
    first: Tensor  # (B·K, 1), the first position of the target
    states: Tensor  # (B·K, S, W), of the encoder


class _HuggingFaceModel(AutoregressiveNetwork):
    """A model of the library whose output is cut to the tokenizer's `vocab_size` tokens."""

    graph_capturable = False

    def __init__(self, model: nn.Module, *, vocab_size: int) -> None:
        super().__init__()
        self.model, self.vocab_size = model, vocab_size

    def reorder(self, cache: HuggingFaceCache, parents: Tensor) -> None:
        rows = torch.arange(len(parents), device=parents.device)[:, None] * parents.shape[1]
        cache.past_key_values.reorder_cache((rows + parents).flatten())


class DecoderOnlyModel(_HuggingFaceModel):
    """A decoder-only model such as GPT-2: it continues the source, with [BOS] in between."""

    shard_whole = True  # keys leave a layer through the cache, where sharding would miss their gradients

    def encode(self, source: Source) -> EncoderOutput:
        body: Any = self.model.base_model
        outputs = body(input_ids=source.tokens, attention_mask=(~source.padding).long(), use_cache=True)
        layers = outputs.past_key_values.layers
        keys, values = (
            torch.stack([getattr(layer, name) for layer in layers]) for name in ("keys", "values")
        )
        return EncoderOutput(outputs.last_hidden_state, source.padding, keys, values)

    def forward(self, tokens: Tensor, encoded: EncoderOutput) -> Tensor:
        state = self.empty_cache(encoded, 1, length=tokens.shape[1])
        position_indices = state.first + torch.arange(tokens.shape[1], device=tokens.device)
        return self._logits(tokens, position_indices, state, state.attended)

    def empty_cache(self, encoded: EncoderOutput, hypotheses: int, *, length: int) -> HuggingFaceCache:
        past_key_values = import_transformers().DynamicCache()
        for layer, pair in enumerate(zip(encoded.keys, encoded.values, strict=True)):
            past_key_values.update(*(each.repeat_interleave(hypotheses, dim=0) for each in pair), layer)
        source = ~encoded.padding
        attended = torch.cat([source, source.new_ones(len(source), length)], dim=1)
        attended, first = (
            each.repeat_interleave(hypotheses, dim=0) for each in (attended, source.sum(1, keepdim=True))
        )
        return HuggingFaceCache(past_key_values, attended, first, encoded.states)

    def step(
        self,
        tokens: Tensor,
        position: Tensor,
        cache: HuggingFaceCache,
        encoded: EncoderOutput,
        *,
        cache_length: int,
    ) -> Tensor:
        attended = cache.attended[:, : cache.past_key_values.get_seq_length() + 1]
        logits = self._logits(tokens.reshape(-1, 1), cache.first + position, cache, attended)
        return logits.view(*tokens.shape, -1)

    def _logits(
        self, tokens: Tensor, position_indices: Tensor, state: HuggingFaceCache, attended: Tensor
    ) -> Tensor:
        outputs = self.model(
            input_ids=tokens,
            attention_mask=attended.long(),
            position_ids=position_indices,
            past_key_values=state.past_key_values,
            use_cache=True,
        )
        return outputs.logits[..., : self.vocab_size]


class EncoderDecoderModel(_HuggingFaceModel):
    """An encoder-decoder such as T5, BART or Marian."""

    def __init__(self, model: nn.Module, *, vocab_size: int, decoder_prefix: Sequence[int] = ()) -> None:
        """`decoder_prefix` holds the tokens that the decoder expects before the first one."""
        super().__init__(model, vocab_size=vocab_size)
        self.decoder_prefix = tuple(decoder_prefix)

    @property
    def model_dim(self) -> int:
        """The size W of the encoder's states."""
        config: Any = self.model.config
        return int(config.hidden_size)

    def encode(self, source: Source) -> EncoderOutput:
        encoder: Any = self.model.get_encoder()  # type: ignore[operator]
        outputs = encoder(input_ids=source.tokens, attention_mask=(~source.padding).long())
        return states_only_output(outputs.last_hidden_state, source.padding)

    def forward(self, tokens: Tensor, encoded: EncoderOutput) -> Tensor:
        tokens = torch.cat([self._prefix_rows(tokens), tokens], dim=1)
        logits = self._logits(tokens, encoded.states, ~encoded.padding, None)
        return logits[:, len(self.decoder_prefix) :]

    def empty_cache(self, encoded: EncoderOutput, hypotheses: int, *, length: int) -> HuggingFaceCache:
        transformers = import_transformers()
        past_key_values = transformers.EncoderDecoderCache(
            transformers.DynamicCache(), transformers.DynamicCache()
        )
        states, attended = (
            each.repeat_interleave(hypotheses, dim=0) for each in (encoded.states, ~encoded.padding)
        )
        state = HuggingFaceCache(
            past_key_values, attended, attended.new_zeros(len(attended), 1, dtype=torch.long), states
        )
        if self.decoder_prefix:
            self._logits(self._prefix_rows(state.first), states, attended, past_key_values)
        return state

    def step(
        self,
        tokens: Tensor,
        position: Tensor,
        cache: HuggingFaceCache,
        encoded: EncoderOutput,
        *,
        cache_length: int,
    ) -> Tensor:
        logits = self._logits(tokens.reshape(-1, 1), cache.states, cache.attended, cache.past_key_values)
        return logits.view(*tokens.shape, -1)

    def _prefix_rows(self, tokens: Tensor) -> Tensor:
        """The decoder prefix of each row, (B, number of its tokens)."""
        return torch.tensor(self.decoder_prefix, dtype=torch.long, device=tokens.device).expand(
            len(tokens), -1
        )

    def _logits(self, tokens: Tensor, states: Tensor, attended: Tensor, past_key_values: Any) -> Tensor:
        outputs = self.model(
            encoder_outputs=import_transformers().modeling_outputs.BaseModelOutput(last_hidden_state=states),
            attention_mask=attended.long(),
            decoder_input_ids=tokens,
            past_key_values=past_key_values,
            use_cache=past_key_values is not None,
        )
        return outputs.logits[..., : self.vocab_size]


def states_only_output(states: Tensor, padding: Tensor) -> EncoderOutput:
    """Encoder states without keys and values, which the library's decoders compute themselves."""
    nothing = states.new_zeros(0)
    return EncoderOutput(states, padding, nothing, nothing)
