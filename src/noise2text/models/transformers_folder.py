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

from noise2text.core.config import option, require_heads, require_least, require_share
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.nn.pretrained import CausalModel, SequenceModel, keeps_past, library
from noise2text.training.config import TrainingSettings

__all__ = [
    "CAUSAL",
    "SEQUENCE",
    "CausalSettings",
    "Family",
    "PretrainedSettings",
    "SequenceSettings",
    "keep_architecture",
    "network",
    "start_from_folder",
]


@dataclass(frozen=True)
class PretrainedSettings(TrainingSettings):
    """Where the model comes from, and how it is fine-tuned; no paper here gives these numbers."""

    from_folder: str = option("", "the pre-trained model: config.json, tokenizer.json and safetensors")
    scratch: bool = option(False, "start from chance in the shape below, without a folder")
    architecture: str = option("", "the library's configuration as JSON; training fills it in")
    tokenizer: str = option("folder", "folder (the model's own); from chance: bpe, characters or wordpiece")
    width: int = option(768, "d_model, of a model from chance")
    ffn: int = option(3072, "d_ffn, of a model from chance")
    heads: int = option(12, "attention heads, of a model from chance")
    dropout: float = option(0.1, "dropout, of a model from chance; a folder has its own")
    label_smoothing: float = option(0.0, "share of the target's probability that is spread over all tokens")
    steps: int = option(20_000, "how many updates to train")
    learning_rate: float = option(5e-5, "the peak of the learning rate")
    betas: tuple[float, float] = option((0.9, 0.999), "Adam's β")
    decay: str = option("linear", "how the learning rate falls: inverse-sqrt, linear, cosine or constant")
    warmup: int = option(500, "steps over which the learning rate rises")
    validate_every: int = option(1_000, "steps between two validations")
    beam: int = option(5, "hypotheses of the beam search, as the model's default")
    length_penalty: float = option(1.0, "the power of the length in a score, as the model's default")

    @property
    def tokenizers(self) -> tuple[str, ...]:
        return (*super().tokenizers, "folder")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_heads(self)
        require_least(self, 1, "ffn", "beam")
        require_share(self, "dropout", "label_smoothing")
        if self.scratch and self.from_folder:
            raise Problem(
                "A model starts from a folder or from chance: set from_folder or scratch, not both."
            )


@dataclass(frozen=True)
class CausalSettings(PretrainedSettings):
    """GPT-2's base shape."""

    layers: int = option(12, "layers, of a model from chance")


@dataclass(frozen=True)
class SequenceSettings(PretrainedSettings):
    """T5's base shape."""

    encoder_layers: int = option(12, "layers that read the source, of a model from chance")
    decoder_layers: int = option(12, "layers that write the target, of a model from chance")
    learning_rate: float = option(1e-4, "the peak of the learning rate")


@dataclass(frozen=True)
class Family:
    """What differs between kinds of models: the library's class, a shape from chance, and the writer."""

    name: str
    loader: str  # the library's class that finds a model of this family
    shape: Callable[[Any, Tokenizer], Any]  # a configuration from the settings
    writer: Callable[[Any, Tokenizer], CausalModel | SequenceModel]
    positions: Callable[[Any, Tokenizer], int]  # how many the longest pair needs

    @property
    def models(self) -> Any:
        """The library's class."""
        return getattr(library(), self.loader)


def _causal_shape(settings: CausalSettings, tokenizer: Tokenizer) -> Any:
    return library().GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=max(1024, _causal_positions(settings, tokenizer)),
        n_embd=settings.width,
        n_inner=settings.ffn,
        n_head=settings.heads,
        n_layer=settings.layers,
        resid_pdrop=settings.dropout,
        embd_pdrop=settings.dropout,
        attn_pdrop=settings.dropout,
        bos_token_id=tokenizer.bos,
        eos_token_id=tokenizer.eos,
        pad_token_id=tokenizer.pad,
    )


def _causal_writer(model: Any, tokenizer: Tokenizer) -> CausalModel:
    return CausalModel(model, size=len(tokenizer))


def _causal_positions(settings: CausalSettings, tokenizer: Tokenizer) -> int:
    return sum(map(len, tokenizer.frame)) + settings.max_source + 1 + settings.max_target


def _sequence_shape(settings: SequenceSettings, tokenizer: Tokenizer) -> Any:
    return library().T5Config(
        vocab_size=len(tokenizer),
        d_model=settings.width,
        d_kv=settings.width // settings.heads,
        d_ff=settings.ffn,
        num_heads=settings.heads,
        num_layers=settings.encoder_layers,
        num_decoder_layers=settings.decoder_layers,
        dropout_rate=settings.dropout,
        decoder_start_token_id=tokenizer.bos,
        eos_token_id=tokenizer.eos,
        pad_token_id=tokenizer.pad,
    )


def _sequence_writer(model: Any, tokenizer: Tokenizer) -> SequenceModel:
    first = getattr(model.config, "decoder_start_token_id", None)
    opening = () if first in (None, tokenizer.bos) else (first,)
    return SequenceModel(model, size=len(tokenizer), opening=opening)


def _sequence_positions(settings: SequenceSettings, tokenizer: Tokenizer) -> int:
    return max(sum(map(len, tokenizer.frame)) + settings.max_source, settings.max_target + 2)


CAUSAL = Family("causal model", "AutoModelForCausalLM", _causal_shape, _causal_writer, _causal_positions)
SEQUENCE = Family(
    "encoder-decoder", "AutoModelForSeq2SeqLM", _sequence_shape, _sequence_writer, _sequence_positions
)


def network(family: Family, settings: PretrainedSettings, tokenizer: Tokenizer) -> Any:
    """The writer of the settings' architecture, its weights left to chance."""
    config = _configuration(family, settings, tokenizer)
    other = Problem(
        f"The {config.model_type} of {settings.from_folder} is no {family.name}; choose the other recipe "
        f"of pre-trained models."
    )
    if family is CAUSAL and config.is_encoder_decoder:  # the library would take its decoder alone
        raise other
    try:
        model = family.models.from_config(config, dtype=torch.float32)
    except ValueError as error:
        raise other from error
    if family is CAUSAL and not keeps_past(model):
        raise Problem(
            f"The {config.model_type} of {settings.from_folder} keeps no keys and values of what it has "
            f"read; use a causal model such as GPT-2."
        )
    return family.writer(model, tokenizer)


def _configuration(family: Family, settings: PretrainedSettings, tokenizer: Tokenizer) -> Any:
    """The library's configuration: the one kept, the folder's, or the shape of the settings."""
    if settings.architecture:
        config = _parsed(settings.architecture, where="The setting architecture")
    elif settings.from_folder:
        config = _folders(Path(settings.from_folder))
    else:
        config = family.shape(settings, tokenizer)
    _check(config, tokenizer, family.positions(settings, tokenizer))
    return config


def _folders(folder: Path) -> Any:
    try:
        text = (folder / "config.json").read_text(encoding="utf-8")
    except OSError as error:
        raise Problem(
            f"There is no config.json in {folder}; name a folder that transformers has written."
        ) from error
    if not any(folder.glob("*.safetensors")):
        raise Problem(f"There are no weights in {folder}: they must be safetensors, which run no code.")
    return _parsed(text, where=str(folder / "config.json"))


def _parsed(text: str, *, where: str) -> Any:
    try:
        facts = json.loads(text)
        for unwanted in ("auto_map", "_name_or_path", "transformers_version"):
            facts.pop(unwanted, None)
        return library().AutoConfig.for_model(**facts)
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


def keep_architecture(family: Family) -> Callable[[Any, Tokenizer], Any]:
    """What completes a run's settings by the library's configuration."""

    def resolve(settings: PretrainedSettings, tokenizer: Tokenizer) -> PretrainedSettings:
        if not (settings.scratch or settings.from_folder):
            raise Problem(
                "Name a pre-trained model's folder in the setting from_folder, or set scratch to true."
            )
        config = _configuration(family, settings, tokenizer)
        return dataclasses.replace(settings, architecture=config.to_json_string(use_diff=False))

    return resolve


def start_from_folder(family: Family, settings: PretrainedSettings, writer: Any) -> None:
    """Give the writer's network the weights of the folder, if there is one."""
    if not settings.from_folder:
        return
    try:
        model, report = family.models.from_pretrained(
            settings.from_folder,
            config=writer.model.config,
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
    writer.model.load_state_dict(model.state_dict())
