"""A model of transformers from a local folder, or of the same kind from chance: its network and its weights.

The folder is one that transformers writes: config.json, tokenizer.json, model.safetensors. Nothing is
downloaded, and no code of the folder is run. The library's configuration is kept in the settings
(`architecture`), so that a trained model no longer needs the folder it came from.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from noise2text.core.config import option, require_at_least, require_divisible_heads, require_fraction
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.nn.pretrained import (
    DecoderOnlyModel,
    EncoderDecoderModel,
    import_transformers,
    returns_kv_cache,
)
from noise2text.training.config import TrainingConfig

__all__ = [
    "CAUSAL_FAMILY",
    "SEQ2SEQ_FAMILY",
    "CausalConfig",
    "PretrainedConfig",
    "PretrainedFamily",
    "Seq2SeqConfig",
    "build_decoder",
    "load_pretrained_weights",
    "resolve_architecture",
]


@dataclass(frozen=True)
class PretrainedConfig(TrainingConfig):
    """Where the model comes from, and how it is fine-tuned; no paper here gives these numbers."""

    from_folder: str = option("", "the pre-trained model: config.json, tokenizer.json and safetensors")
    from_scratch: bool = option(False, "start from chance in the shape below, without a folder")
    architecture: str = option("", "the library's configuration as JSON; training fills it in")
    tokenizer: str = option("folder", "folder (the model's own); from chance: bpe, characters or wordpiece")
    model_dim: int = option(768, "d_model, of a model from chance")
    ffn_dim: int = option(3072, "d_ffn, of a model from chance")
    heads: int = option(12, "attention heads, of a model from chance")
    dropout: float = option(0.1, "dropout, of a model from chance; a folder has its own")
    label_smoothing: float = option(0.0, "share of the target's probability that is spread over all tokens")
    steps: int = option(20_000, "how many updates to train")
    lr: float = option(5e-5, "the peak of the learning rate")
    betas: tuple[float, float] = option((0.9, 0.999), "Adam's β")
    lr_schedule: str = option(
        "linear", "how the learning rate falls: inverse-sqrt, linear, cosine or constant"
    )
    warmup: int = option(500, "steps over which the learning rate rises")
    validate_every: int = option(1_000, "steps between two validations")
    beam: int = option(5, "hypotheses of the beam search, as the model's default")
    length_penalty: float = option(1.0, "the power of the length in a score, as the model's default")

    @property
    def tokenizers(self) -> tuple[str, ...]:
        return (*super().tokenizers, "folder")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_divisible_heads(self)
        require_at_least(self, 1, "ffn_dim", "beam")
        require_fraction(self, "dropout", "label_smoothing")
        if self.from_scratch and self.from_folder:
            raise Problem(
                "A model starts from a folder or from chance: set from_folder or scratch, not both."
            )


@dataclass(frozen=True)
class CausalConfig(PretrainedConfig):
    """GPT-2's base shape."""

    layers: int = option(12, "layers, of a model from chance")


@dataclass(frozen=True)
class Seq2SeqConfig(PretrainedConfig):
    """T5's base shape."""

    encoder_layers: int = option(12, "layers that read the source, of a model from chance")
    decoder_layers: int = option(12, "layers that write the target, of a model from chance")
    lr: float = option(1e-4, "the peak of the learning rate")


@dataclass(frozen=True)
class PretrainedFamily:
    """What differs between kinds of models: the library's class, a shape from chance, and the writer."""

    name: str
    loader: str  # the library's class that finds a model of this family
    shape: Callable[[Any, Tokenizer], Any]  # a configuration from the settings
    network: Callable[[Any, Tokenizer], DecoderOnlyModel | EncoderDecoderModel]
    positions: Callable[[Any, Tokenizer], int]  # how many the longest pair needs

    @property
    def models(self) -> Any:
        """The library's class."""
        return getattr(import_transformers(), self.loader)


def _causal_config(settings: CausalConfig, tokenizer: Tokenizer) -> Any:
    return import_transformers().GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=max(1024, _causal_positions(settings, tokenizer)),
        n_embd=settings.model_dim,
        n_inner=settings.ffn_dim,
        n_head=settings.heads,
        n_layer=settings.layers,
        resid_pdrop=settings.dropout,
        embd_pdrop=settings.dropout,
        attn_pdrop=settings.dropout,
        bos_token_id=tokenizer.bos,
        eos_token_id=tokenizer.eos,
        pad_token_id=tokenizer.pad,
    )


def _causal_writer(model: Any, tokenizer: Tokenizer) -> DecoderOnlyModel:
    return DecoderOnlyModel(model, vocab_size=len(tokenizer))


def _causal_positions(settings: CausalConfig, tokenizer: Tokenizer) -> int:
    return sum(map(len, tokenizer.surrounding_tokens)) + settings.max_source + 1 + settings.max_target


def _sequence_config(settings: Seq2SeqConfig, tokenizer: Tokenizer) -> Any:
    return import_transformers().T5Config(
        vocab_size=len(tokenizer),
        d_model=settings.model_dim,
        d_kv=settings.model_dim // settings.heads,
        d_ff=settings.ffn_dim,
        num_heads=settings.heads,
        num_layers=settings.encoder_layers,
        num_decoder_layers=settings.decoder_layers,
        dropout_rate=settings.dropout,
        decoder_start_token_id=tokenizer.bos,
        eos_token_id=tokenizer.eos,
        pad_token_id=tokenizer.pad,
    )


def _sequence_writer(model: Any, tokenizer: Tokenizer) -> EncoderDecoderModel:
    first = getattr(model.config, "decoder_start_token_id", None)
    decoder_prefix = () if first in (None, tokenizer.bos) else (first,)
    return EncoderDecoderModel(model, vocab_size=len(tokenizer), decoder_prefix=decoder_prefix)


def _sequence_positions(settings: Seq2SeqConfig, tokenizer: Tokenizer) -> int:
    return max(sum(map(len, tokenizer.surrounding_tokens)) + settings.max_source, settings.max_target + 2)


CAUSAL_FAMILY = PretrainedFamily(
    "causal model", "AutoModelForCausalLM", _causal_config, _causal_writer, _causal_positions
)
SEQ2SEQ_FAMILY = PretrainedFamily(
    "encoder-decoder", "AutoModelForSeq2SeqLM", _sequence_config, _sequence_writer, _sequence_positions
)


def build_decoder(family: PretrainedFamily, settings: PretrainedConfig, tokenizer: Tokenizer) -> Any:
    """The writer of the settings' architecture, its weights left to chance."""
    config = _find_config(family, settings, tokenizer)
    other = Problem(
        f"The {config.model_type} of {settings.from_folder} is no {family.name}; choose the other recipe "
        f"of pre-trained models."
    )
    if family is CAUSAL_FAMILY and config.is_encoder_decoder:  # the library would take its decoder alone
        raise other
    try:
        model = family.models.from_config(config, dtype=torch.float32)
    except ValueError as error:
        raise other from error
    if family is CAUSAL_FAMILY and not returns_kv_cache(model):
        raise Problem(
            f"The {config.model_type} of {settings.from_folder} keeps no keys and values of what it has "
            f"read; use a causal model such as GPT-2."
        )
    return family.network(model, tokenizer)


def _find_config(family: PretrainedFamily, settings: PretrainedConfig, tokenizer: Tokenizer) -> Any:
    """The library's configuration: the one kept, the folder's, or the shape of the settings."""
    if settings.architecture:
        config = _parse_config(settings.architecture, where="The setting architecture")
    elif settings.from_folder:
        config = _read_folder_config(Path(settings.from_folder))
    else:
        config = family.shape(settings, tokenizer)
    _check(config, tokenizer, family.positions(settings, tokenizer))
    return config


def _read_folder_config(folder: Path) -> Any:
    try:
        text = (folder / "config.json").read_text(encoding="utf-8")
    except OSError as error:
        raise Problem(
            f"There is no config.json in {folder}; name a folder that transformers has written."
        ) from error
    if not any(folder.glob("*.safetensors")):
        raise Problem(f"There are no weights in {folder}: they must be safetensors, which run no code.")
    return _parse_config(text, where=str(folder / "config.json"))


def _parse_config(text: str, *, where: str) -> Any:
    try:
        fields = json.loads(text)
        for unwanted in ("auto_map", "_name_or_path", "transformers_version"):
            fields.pop(unwanted, None)
        return import_transformers().AutoConfig.for_model(**fields)
    except (ValueError, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[0][:100]
        raise Problem(f"{where} is no configuration that transformers knows: {reason}.") from error


def _check(config: Any, tokenizer: Tokenizer, needed: int) -> None:
    """Refuse what does not fit together, before any weight is made."""
    size = getattr(config, "vocab_size", None)
    if size is None:
        raise Problem(
            f"The pre-trained {config.model_type} is made of two models, each with its own tokens; use one "
            f"that has one vocabulary, such as T5 or BART."
        )
    if size < len(tokenizer):
        raise Problem(
            f"The pre-trained model has {size} tokens, but its tokenizer {len(tokenizer)}; set "
            f"tokenizer to folder, or use a folder whose files belong together."
        )
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and needed > positions:
        raise Problem(
            f"The pre-trained model has {positions} positions, but the longest pair needs {needed}; lower "
            f"max_source or max_target."
        )


def resolve_architecture(family: PretrainedFamily) -> Callable[[Any, Tokenizer], Any]:
    """What completes a run's settings by the library's configuration."""

    def resolve(settings: PretrainedConfig, tokenizer: Tokenizer) -> PretrainedConfig:
        if not (settings.from_scratch or settings.from_folder):
            raise Problem(
                "Name a pre-trained model's folder in the setting from_folder, or set scratch to true."
            )
        config = _find_config(family, settings, tokenizer)
        return dataclasses.replace(settings, architecture=config.to_json_string(use_diff=False))

    return resolve


def load_pretrained_weights(family: PretrainedFamily, settings: PretrainedConfig, network: Any) -> None:
    """Give the writer's network the weights of the folder, if there is one."""
    if not settings.from_folder:
        return
    try:
        model, report = family.models.from_pretrained(
            settings.from_folder,
            config=network.model.config,
            local_files_only=True,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0][:160]
        raise Problem(f"The weights in {settings.from_folder} cannot be read ({reason}).") from error
    if report["missing_keys"]:
        name = sorted(report["missing_keys"])[0]
        raise Problem(f"The weights in {settings.from_folder} lack {name}; is the folder complete?")
    network.model.load_state_dict(model.state_dict())
