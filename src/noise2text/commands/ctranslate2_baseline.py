"""Our Transformer in CTranslate2, the fastest engine for autoregressive translation on a CPU.

`convert_transformer` writes the weights of an autoregressive model in CTranslate2's format, through its own
specification of a post-norm Transformer, and `CTranslate2Model` generates with it. Tokens are named by their
ids, so that both engines read and write the same tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from noise2text.core.errors import Problem
from noise2text.models import AutoregressiveModel, Model
from noise2text.nn.transformer import Transformer

__all__ = ["CTranslate2Model", "convert_transformer", "require_transformer"]

UNKNOWN, BEGIN, END = "<unk>", "<s>", "</s>"  # CTranslate2's own names; other tokens are named by their ids


def require_transformer(model: Model, folder: Path) -> AutoregressiveModel:
    """The model, if CTranslate2 can run it; a Problem if not."""
    if not isinstance(model, AutoregressiveModel) or not isinstance(model.network, Transformer):
        raise Problem(
            f"{folder} is no Transformer, which is all that CTranslate2 can run: give one of that recipe."
        )
    return model


def _import_ctranslate2() -> ModuleType:
    try:
        import ctranslate2
    except ImportError as error:
        raise Problem("--peer needs ctranslate2: pip install 'noise2text[ctranslate2]'.") from error
    found: ModuleType = ctranslate2
    return found


def convert_transformer(model: AutoregressiveModel, folder: Path, *, quantization: str | None = None) -> None:
    """Write a Transformer to a folder that CTranslate2 loads.

    Args:
        model: an autoregressive model of the recipe transformer, in float32.
        folder: the folder to write.
        quantization: that of the stored weights, such as int8; None stores float32.
    """
    specs = _import_ctranslate2().specs
    network: Any = model.network
    layers = (len(network.encoder.layers), len(network.layers))
    spec = specs.TransformerSpec.from_config(layers, network.heads, pre_norm=False)
    _set_embeddings(spec.encoder, network.encoder)
    spec.encoder.embeddings[0].weight = _numpy(network.embedding.weight)
    _set_embeddings(spec.decoder, network)
    spec.decoder.embeddings.weight = spec.decoder.projection.weight = _numpy(network.embedding.weight)
    for layer_spec, layer in zip(spec.encoder.layer, network.encoder.layers, strict=True):
        _set_self_attention_and_ffn(layer_spec, layer)
    keys_and_values = network.key_value_projection
    weights, biases = keys_and_values.weight.chunk(2 * layers[1]), keys_and_values.bias.chunk(2 * layers[1])
    for number, (layer_spec, layer) in enumerate(zip(spec.decoder.layer, network.layers, strict=True)):
        _set_self_attention_and_ffn(layer_spec, layer)
        attention = layer_spec.attention
        _set_linear(attention.linear[0], layer.cross_attention.query_projection)
        own = (number, layers[1] + number)  # all layers' keys come before all layers' values
        attention.linear[1].weight = _numpy(torch.cat([weights[at] for at in own]))
        attention.linear[1].bias = _numpy(torch.cat([biases[at] for at in own]))
        _set_linear(attention.linear[2], layer.cross_attention.output_projection)
        _set_norm(attention.layer_norm, layer.cross_attention_norm)
    for register in (spec.register_source_vocabulary, spec.register_target_vocabulary):
        register(_name_tokens(model))
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = UNKNOWN, BEGIN, END
    spec.config.decoder_start_token = BEGIN
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def _name_tokens(model: Model) -> list[str]:
    """The name of every token, by its id."""
    tokenizer = model.tokenizer
    special = {tokenizer.unk: UNKNOWN, tokenizer.bos: BEGIN, tokenizer.eos: END}
    return [special.get(number, str(number)) for number in range(len(tokenizer))]


def _set_embeddings(spec: Any, network: Any) -> None:
    spec.scale_embeddings = True  # by √W, as ours
    spec.position_encodings.encodings = _numpy(network.position_embedding.weight)


def _set_self_attention_and_ffn(spec: Any, layer: Any) -> None:
    _set_linear(spec.self_attention.linear[0], layer.self_attention.qkv_projection)
    _set_linear(spec.self_attention.linear[1], layer.self_attention.output_projection)
    _set_norm(spec.self_attention.layer_norm, layer.self_attention_norm)
    first, *_, last = layer.feed_forward
    _set_linear(spec.ffn.linear_0, first)
    _set_linear(spec.ffn.linear_1, last)
    _set_norm(spec.ffn.layer_norm, layer.feed_forward_norm)


def _set_linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight, spec.bias = _numpy(linear.weight), _numpy(linear.bias)


def _set_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _numpy(norm.weight), _numpy(norm.bias)


def _numpy(tensor: Tensor) -> Any:
    return tensor.detach().float().cpu().contiguous().numpy()


@dataclass(frozen=True)
class CTranslate2Model:
    """A converted Transformer, which turns texts into texts by CTranslate2."""

    model: AutoregressiveModel  # for its tokenizer and its limits
    translator: Any

    @classmethod
    def load(cls, model: AutoregressiveModel, folder: Path, *, precision: str = "int8") -> CTranslate2Model:
        """The converted model in a folder, on the CPU, with as many threads as PyTorch has."""
        translator = _import_ctranslate2().Translator(
            str(folder),
            device="cpu",
            compute_type=precision,
            inter_threads=1,
            intra_threads=torch.get_num_threads(),
        )
        return cls(model, translator)

    def generate(
        self, texts: Sequence[str], *, beam: int, batch: int = 32, length: int | None = None
    ) -> list[str]:
        """The best text for each text; `length` fixes the number of tokens."""
        named, numbers = self._tokens(texts)
        forbidden = self.model.tokenizer.special_tokens - {self.model.tokenizer.eos}
        names = _name_tokens(self.model)
        results = self.translator.translate_batch(
            named,
            beam_size=beam,
            max_batch_size=batch,
            length_penalty=1.0,
            min_decoding_length=length or 0,
            max_decoding_length=length or self.model.max_target,
            suppress_sequences=[[names[token]] for token in sorted(forbidden)],
            max_input_length=0,
        )
        return self.model.tokenizer.decode(
            [[numbers[name] for name in result.hypotheses[0] if name != END] for result in results]
        )

    def likelihood(self, texts: Sequence[str], targets: Sequence[str]) -> list[float]:
        """log p(target | text) of each pair, the end included."""
        sources, _ = self._tokens(texts)
        scored = self.translator.score_batch(sources, self._tokens(targets)[0])
        return [float(sum(result.log_probs)) for result in scored]

    def _tokens(self, texts: Sequence[str]) -> tuple[list[list[str]], dict[str, int]]:
        """The names of each text's tokens, and the token of every name."""
        names = _name_tokens(self.model)
        rows = [row[: self.model.max_source] for row in self.model.tokenizer.encode(texts)]
        return [[names[token] for token in row] for row in rows], {name: i for i, name in enumerate(names)}
