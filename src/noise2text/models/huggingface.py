"""A model of the library transformers, from a local folder or from scratch: its network and its weights.

The folder is one that transformers writes: config.json, tokenizer.json, model.safetensors. Nothing is
downloaded, and no code of the folder is run. The library's configuration is kept in the config
(`model.architecture`), so that a trained model no longer needs the folder that it started from.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.pretrained_architecture import (
    check_architecture,
    first_line,
    parse_architecture,
    read_architecture,
)
from noise2text.models.pretrained_config import CausalConfig, PretrainedConfig, Seq2SeqConfig
from noise2text.nn.huggingface import (
    DecoderOnlyModel,
    EncoderDecoderModel,
    import_transformers,
    returns_kv_cache,
)

__all__ = [
    "CAUSAL_FAMILY",
    "SEQ2SEQ_FAMILY",
    "PretrainedFamily",
    "build_network",
    "load_pretrained_weights",
    "resolve_architecture",
]


@dataclass(frozen=True)
class PretrainedFamily:
    """What differs between families of models: the library's class, a shape from scratch, and the network."""

    name: str
    loader: str  # the library's class that finds a model of this family
    shape: Callable[[Any, Tokenizer], Any]  # the library's configuration from ours
    network: Callable[[Any, Tokenizer], DecoderOnlyModel | EncoderDecoderModel]
    positions: Callable[[Any, Tokenizer], int]  # how many the longest pair needs

    @property
    def models(self) -> Any:
        """The library's class."""
        return getattr(import_transformers(), self.loader)


def _causal_shape(config: CausalConfig, tokenizer: Tokenizer) -> Any:
    model = config.model
    return import_transformers().GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=max(1024, _causal_positions(config, tokenizer)),
        n_embd=model.model_dim,
        n_inner=model.ffn_dim,
        n_head=model.heads,
        n_layer=model.layers,
        resid_pdrop=model.dropout,
        embd_pdrop=model.dropout,
        attn_pdrop=model.dropout,
        bos_token_id=tokenizer.bos,
        eos_token_id=tokenizer.eos,
        pad_token_id=tokenizer.pad,
    )


def _causal_network(model: Any, tokenizer: Tokenizer) -> DecoderOnlyModel:
    return DecoderOnlyModel(model, vocab_size=len(tokenizer))


def _causal_positions(config: CausalConfig, tokenizer: Tokenizer) -> int:
    return sum(map(len, tokenizer.surrounding_tokens)) + config.data.max_source + 1 + config.data.max_target


def _seq2seq_shape(config: Seq2SeqConfig, tokenizer: Tokenizer) -> Any:
    model = config.model
    return import_transformers().T5Config(
        vocab_size=len(tokenizer),
        d_model=model.model_dim,
        d_kv=model.model_dim // model.heads,
        d_ff=model.ffn_dim,
        num_heads=model.heads,
        num_layers=model.encoder_layers,
        num_decoder_layers=model.decoder_layers,
        dropout_rate=model.dropout,
        decoder_start_token_id=tokenizer.bos,
        eos_token_id=tokenizer.eos,
        pad_token_id=tokenizer.pad,
    )


def _seq2seq_network(model: Any, tokenizer: Tokenizer) -> EncoderDecoderModel:
    first = getattr(model.config, "decoder_start_token_id", None)
    decoder_prefix = () if first in (None, tokenizer.bos) else (first,)
    return EncoderDecoderModel(model, vocab_size=len(tokenizer), decoder_prefix=decoder_prefix)


def _seq2seq_positions(config: Seq2SeqConfig, tokenizer: Tokenizer) -> int:
    surrounding = sum(map(len, tokenizer.surrounding_tokens))
    return max(surrounding + config.data.max_source, config.data.max_target + 2)


CAUSAL_FAMILY = PretrainedFamily(
    "causal model", "AutoModelForCausalLM", _causal_shape, _causal_network, _causal_positions
)
SEQ2SEQ_FAMILY = PretrainedFamily(
    "encoder-decoder", "AutoModelForSeq2SeqLM", _seq2seq_shape, _seq2seq_network, _seq2seq_positions
)


def build_network(family: PretrainedFamily, config: PretrainedConfig, tokenizer: Tokenizer) -> Any:
    """The network of the config's architecture, with random weights."""
    architecture, folder = _find_architecture(family, config, tokenizer), config.model.from_folder
    wrong_family = Problem(
        f"The {architecture.model_type} of {folder} is no {family.name}; choose the other recipe "
        f"of pre-trained models."
    )
    if family is CAUSAL_FAMILY and architecture.is_encoder_decoder:  # the library would use its decoder alone
        raise wrong_family
    try:
        model = family.models.from_config(architecture, dtype=torch.float32)
        lacks_cache = family is CAUSAL_FAMILY and not returns_kv_cache(model)
    except Exception as error:  # whatever the library raises for values that it did not expect
        if isinstance(error, ValueError) and "Unrecognized configuration class" in str(error):
            raise wrong_family from error
        raise Problem(
            f"transformers cannot build the {architecture.model_type} of the setting architecture: "
            f"{first_line(error)}."
        ) from error
    if lacks_cache:
        raise Problem(
            f"The {architecture.model_type} of {folder} does not return its keys and values; use a causal "
            f"model such as GPT-2."
        )
    return family.network(model, tokenizer)


def _find_architecture(family: PretrainedFamily, config: PretrainedConfig, tokenizer: Tokenizer) -> Any:
    """The library's configuration: the one in our config, the folder's, or one of our config's shape."""
    if config.model.architecture:
        architecture = parse_architecture(config.model.architecture, where="The setting architecture")
    elif config.model.from_folder:
        architecture = read_architecture(Path(config.model.from_folder))
    else:
        architecture = family.shape(config, tokenizer)
    check_architecture(architecture, tokenizer, family.positions(config, tokenizer))
    return architecture


def resolve_architecture(family: PretrainedFamily) -> Callable[[Any, Tokenizer], Any]:
    """A function that fills in `model.architecture`, the library's configuration."""

    def resolve(config: PretrainedConfig, tokenizer: Tokenizer) -> PretrainedConfig:
        if not (config.model.from_scratch or config.model.from_folder):
            raise Problem(
                "Name a pre-trained model's folder in the setting from_folder, or set from_scratch to true."
            )
        architecture = _find_architecture(family, config, tokenizer)
        return config.replace({"model.architecture": architecture.to_json_string(use_diff=False)})

    return resolve


def load_pretrained_weights(family: PretrainedFamily, config: PretrainedConfig, network: Any) -> None:
    """Load the weights of the folder into the network, if the config names a folder."""
    folder = config.model.from_folder
    if not folder:
        return
    _require_own_files(Path(folder))
    try:
        model, report = family.models.from_pretrained(
            folder,
            config=network.model.config,
            local_files_only=True,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0][:160]
        raise Problem(f"The weights in {folder} cannot be read ({reason}).") from error
    if report["missing_keys"]:
        name = sorted(report["missing_keys"])[0]
        raise Problem(f"The weights in {folder} lack {name}; is the folder complete?")
    network.model.load_state_dict(model.state_dict())


def _require_own_files(folder: Path) -> None:
    """Refuse an index of weights that names anything but safetensors files of the folder itself."""
    path = folder / "model.safetensors.index.json"
    if not path.exists():
        return
    try:
        names = set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Problem(f"{path} is not an index of weights; copy it again.") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise Problem(
                f"{path} names {str(name)[:80]!r}, which is not a safetensors file of its folder; copy the "
                f"whole folder from where it came."
            )
