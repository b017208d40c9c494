"""A model of the library transformers, from a local folder or from scratch: its network and its weights.

The folder is one that transformers writes: config.json, tokenizer.json, model.safetensors. Nothing is
downloaded, and no code of the folder is run. The library's configuration is kept in the config
(`model.architecture`), so that a trained model no longer needs the folder that it started from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from noise2text.core.config import Config, option, require_at_least, require_fraction, section
from noise2text.core.errors import Problem
from noise2text.data.config import FolderTokenizerDataConfig
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.config import AutoregressiveGenerationConfig
from noise2text.models.baseline_config import LabelSmoothingOptimConfig
from noise2text.nn.config import require_divisible_heads
from noise2text.nn.huggingface import (
    DecoderOnlyModel,
    EncoderDecoderModel,
    import_transformers,
    returns_kv_cache,
)
from noise2text.training.config import RunConfig

__all__ = [
    "CAUSAL_FAMILY",
    "SEQ2SEQ_FAMILY",
    "CausalConfig",
    "CausalModelConfig",
    "PretrainedConfig",
    "PretrainedFamily",
    "PretrainedModelConfig",
    "Seq2SeqConfig",
    "Seq2SeqModelConfig",
    "build_network",
    "load_pretrained_weights",
    "resolve_architecture",
]


MAX_LAYERS = 1_000

_REFERENCES = {
    "_attn_implementation",
    "_attn_implementation_internal",
    "_experts_implementation",
    "_name_or_path",
    "attn_implementation",
    "auto_map",
    "custom_pipelines",
    "experts_implementation",
    "kernel_config",
    "quantization_config",
    "transformers_version",
}
"""Fields of a configuration that name code, kernels (`org/name` of the hub) or files, or only describe it."""


@dataclass(frozen=True)
class PretrainedModelConfig(Config):
    """Where the model comes from; its shape counts only from scratch, since a folder has its own."""

    from_folder: str = option("", "folder of the pre-trained model: config.json, tokenizer.json, safetensors")
    from_scratch: bool = option(False, "start from random weights in the shape below, without a folder")
    architecture: str = option("", "the library's configuration as JSON; training fills it in")
    model_dim: int = option(768, "d_model, from scratch")
    ffn_dim: int = option(3072, "d_ffn, from scratch")
    heads: int = option(12, "attention heads, from scratch")
    dropout: float = option(0.1, "dropout, from scratch")

    def __post_init__(self) -> None:
        require_divisible_heads(self)
        require_at_least(self, 1, "ffn_dim")
        require_fraction(self, "dropout")
        if self.from_scratch and self.from_folder:
            raise Problem(
                "A model starts from a folder or from scratch: set from_folder or from_scratch, not both."
            )


@dataclass(frozen=True)
class CausalModelConfig(PretrainedModelConfig):
    """GPT-2's base shape."""

    layers: int = option(12, "layers, from scratch")


@dataclass(frozen=True)
class Seq2SeqModelConfig(PretrainedModelConfig):
    """T5's base shape."""

    encoder_layers: int = option(12, "layers of the encoder, from scratch")
    decoder_layers: int = option(12, "layers of the decoder, from scratch")


_OPTIM = LabelSmoothingOptimConfig(
    steps=20_000, lr=5e-5, betas=(0.9, 0.999), lr_schedule="linear", warmup=500, label_smoothing=0.0
)


@dataclass(frozen=True)
class PretrainedConfig(Config):
    """Fine-tuning; no paper here gives these numbers."""

    data: FolderTokenizerDataConfig = section(
        FolderTokenizerDataConfig(tokenizer="folder"), "how texts become tokens"
    )
    model: PretrainedModelConfig = section(PretrainedModelConfig(), "the pre-trained network")
    optim: LabelSmoothingOptimConfig = section(_OPTIM, "the optimizer and the loss")
    generation: AutoregressiveGenerationConfig = section(
        AutoregressiveGenerationConfig(), "how the model generates"
    )
    run: RunConfig = section(RunConfig(validate_every=1_000), "seed, hardware, logging")


@dataclass(frozen=True)
class CausalConfig(PretrainedConfig):
    """A causal model such as GPT-2."""

    model: CausalModelConfig = section(CausalModelConfig(), "the pre-trained network")


@dataclass(frozen=True)
class Seq2SeqConfig(PretrainedConfig):
    """An encoder-decoder such as T5."""

    model: Seq2SeqModelConfig = section(Seq2SeqModelConfig(), "the pre-trained network")
    optim: LabelSmoothingOptimConfig = section(_OPTIM.replace(lr=1e-4), "the optimizer and the loss")


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
    except ValueError as error:
        raise wrong_family from error
    except Exception as error:  # whatever the library raises for values that it did not expect
        raise Problem(
            f"transformers cannot build the {architecture.model_type} of the setting architecture: "
            f"{_first_line(error)}."
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
        architecture = _parse_architecture(config.model.architecture, where="The setting architecture")
    elif config.model.from_folder:
        architecture = _read_architecture(Path(config.model.from_folder))
    else:
        architecture = family.shape(config, tokenizer)
    _check_architecture(architecture, tokenizer, family.positions(config, tokenizer))
    return architecture


def _read_architecture(folder: Path) -> Any:
    try:
        text = (folder / "config.json").read_text(encoding="utf-8")
    except OSError as error:
        raise Problem(
            f"There is no config.json in {folder}; name a folder that transformers has written."
        ) from error
    if not any(folder.glob("*.safetensors")):
        raise Problem(f"There are no weights in {folder}: they must be safetensors, which run no code.")
    return _parse_architecture(text, where=str(folder / "config.json"))


def _parse_architecture(text: str, *, where: str) -> Any:
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise ValueError("it is not a JSON object")
        _require_few_layers(fields)
        return import_transformers().AutoConfig.for_model(**_drop_references(fields))
    except Problem:
        raise
    except Exception as error:  # whatever the library raises for values that it did not expect
        raise Problem(
            f"{where} is no configuration that transformers knows: {_first_line(error)}."
        ) from error


def _drop_references(value: Any) -> Any:
    """The configuration without what would lead the library to code, kernels or files elsewhere."""
    if isinstance(value, dict):
        return {name: _drop_references(each) for name, each in value.items() if name not in _REFERENCES}
    return [_drop_references(each) for each in value] if isinstance(value, list) else value


def _require_few_layers(fields: Mapping[str, Any]) -> None:
    """Refuse numbers of layers that would take minutes to build before their weights are found missing."""
    for name, value in fields.items():
        if isinstance(value, dict):
            _require_few_layers(value)
        elif "layer" in name and isinstance(value, int) and not 0 <= value <= MAX_LAYERS:
            raise ValueError(f"{name} must be between 0 and {MAX_LAYERS:,}")


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return (lines[0] if lines else type(error).__name__)[:100]


def _check_architecture(architecture: Any, tokenizer: Tokenizer, needed: int) -> None:
    """Raise a Problem, before weights are allocated, if the tokenizer or the longest pair does not fit."""
    size = getattr(architecture, "vocab_size", None)
    if size is None:
        raise Problem(
            f"The pre-trained {architecture.model_type} consists of two models with two vocabularies; use "
            f"one with a single vocabulary, such as T5 or BART."
        )
    if size < len(tokenizer):
        raise Problem(
            f"The pre-trained model has {size} tokens, but its tokenizer {len(tokenizer)}; set "
            f"tokenizer to folder, or use a folder whose files belong together."
        )
    positions = getattr(architecture, "max_position_embeddings", None)
    if positions is not None and needed > positions:
        raise Problem(
            f"The pre-trained model has {positions} positions, but the longest pair needs {needed}; lower "
            f"max_source or max_target."
        )


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
