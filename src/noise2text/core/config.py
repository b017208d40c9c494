"""Configuration: frozen dataclasses, composed of sections, whose fields carry their own help.

    @dataclass(frozen=True)
    class OptimConfig(Config):
        lr: float = option(5e-4, "peak learning rate")

    @dataclass(frozen=True)
    class RecipeConfig(Config):
        seed: int = option(0, "seed of the weights, the data order and the noise")
        optim: OptimConfig = section(OptimConfig(), "the optimizer")

    config = RecipeConfig().replace({"optim.lr": 1e-3}, seed=1)

A setting is a field that holds a value. Its full name is dotted (`optim.lr`); its short name (`lr`) works
wherever no other setting has it. Every change goes through `dataclasses.replace`, so that `__post_init__`
of every section validates it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from noise2text.core.convert import convert_value
from noise2text.core.errors import Problem, find_closest

__all__ = [
    "REMARKS",
    "SYNONYMS",
    "Config",
    "apply_overrides",
    "describe",
    "from_dict",
    "get_setting",
    "has_setting",
    "option",
    "parse_assignments",
    "parse_numbers",
    "parse_options",
    "read_config",
    "require_at_least",
    "require_choice",
    "require_divisible_heads",
    "require_fraction",
    "section",
    "to_dict",
    "to_yaml",
]

S = TypeVar("S")

SYNONYMS: dict[str, str] = {
    "lr": "learning_rate peak_lr max_lr",
    "lr_schedule": "lr_scheduler lr_scheduler_type scheduler decay lr_decay",
    "warmup": "warmup_steps warmup_updates num_warmup_steps",
    "optim.steps": "epochs num_epochs num_train_epochs max_epochs max_steps max_updates updates iterations",
    "max_tokens": "tokens batch batch_size batch_tokens per_device_train_batch_size",
    "accumulate": "gradient_accumulation gradient_accumulation_steps grad_accumulation update_freq",
    "clip_norm": "clip grad_clip gradient_clip gradient_clipping gradient_clip_val max_grad_norm",
    "ema_decay": "ema ema_rate",
    "average_best": "average checkpoint_averaging",
    "betas": "adam_betas",
    "weight_decay": "wd",
    "label_smoothing": "smoothing",
    "seed": "random_seed",
    "model_dim": "width hidden_size hidden_dim d_model dim",
    "ffn_dim": "ffn ffn_size d_ff d_ffn intermediate_size feedforward",
    "embedding_dim": "embedding embedding_size emb_dim d_emb",
    "heads": "num_heads n_heads attention_heads num_attention_heads",
    "layers": "num_layers n_layers num_hidden_layers depth",
    "encoder_layers and decoder_layers": "layers num_layers n_layers num_hidden_layers depth",
    "encoder_layers": "num_encoder_layers",
    "decoder_layers": "num_decoder_layers",
    "vocabulary": "vocab vocab_size vocabulary_size",
    "max_source": "max_source_length max_src_len",
    "max_target": "max_target_length max_tgt_len max_length max_len seq_len",
    "schedule": "noise_schedule",
    "num_timesteps": "timesteps diffusion_steps train_timesteps num_train_timesteps",
    "self_conditioning": "self_cond",
    "generation.steps": "num_inference_steps inference_steps sampling_steps num_steps",
    "generation_steps": "num_inference_steps inference_steps sampling_steps num_steps",
    "steps": "num_inference_steps inference_steps sampling_steps num_steps",
    "beam": "beam_size num_beams",
    "length_beam": "beam beam_size num_beams",
    "noise_beam": "candidates num_candidates num_return_sequences",
    "noise_factor": "factor noise_scale",
    "sampling_noise_factor": "factor noise_scale",
    "guidance_weight": "guidance guidance_scale cfg cfg_scale",
    "select": "selection selector rerank",
}
"""Settings, and the words that people try for them; of several settings for a word the first one that exists
is suggested, "a and b" where both exist."""

REMARKS: dict[str, str] = {
    **dict.fromkeys(
        ("epochs", "num_epochs", "num_train_epochs", "max_epochs"), "training counts updates, not epochs"
    ),
    **dict.fromkeys(("batch", "batch_size"), "a batch counts padded tokens, not sentences"),
}
"""Words that mean something slightly different from the setting, and how."""


def option(default: Any, help: str) -> Any:
    """A field of a `Config` with its default and one line of help.

    Args:
        default: the value of the setting where nobody changes it.
        help: what the setting does; `noise2text config` prints it beside the value.

    Returns:
        A dataclass field.

    >>> from dataclasses import dataclass
    >>> from noise2text import Config, option
    >>> @dataclass(frozen=True)
    ... class BeamConfig(Config):
    ...     beam: int = option(5, "hypotheses of the beam search")
    >>> BeamConfig()
    BeamConfig(beam=5)
    """
    return dataclasses.field(default=default, metadata={"help": help})


def section(default: S, help: str = "") -> S:
    """A field of a `Config` that holds a section, which is again a `Config`.

    Args:
        default: the section with the defaults of this config.
        help: what the section is about; `noise2text config` prints it above the section.

    Returns:
        A dataclass field.

    >>> from dataclasses import dataclass
    >>> from noise2text import Config, OptimConfig, section
    >>> @dataclass(frozen=True)
    ... class MyConfig(Config):
    ...     optim: OptimConfig = section(OptimConfig(lr=1e-3), "the optimizer")
    >>> MyConfig().optim.lr
    0.001
    """
    field: Any = dataclasses.field(default=default, metadata={"help": help})
    return field


@dataclass(frozen=True)
class Config:
    """The base class of configs and their sections: frozen dataclasses whose fields are settings.

    A setting is an `option`, a group of settings is a `section`. A config never changes; `replace` returns a
    new one, and validates it. `noise2text config RECIPE` prints all settings of a recipe with their help.

    >>> from dataclasses import dataclass
    >>> from noise2text import Config, OptimConfig, option, section
    >>> @dataclass(frozen=True)
    ... class MyConfig(Config):
    ...     layers: int = option(6, "layers of the network")
    ...     optim: OptimConfig = section(OptimConfig(lr=1e-3), "the optimizer")
    >>> MyConfig().replace({"optim.steps": 3000}, layers=2).optim.steps
    3000
    """

    def replace(self, changes: Mapping[str, Any] | None = None, /, **settings: Any) -> Self:
        """The config with some settings changed: `config.replace({"optim.steps": 3000}, lr=1e-3)`.

        Args:
            changes: values by full name (`optim.steps`), or by short name where only one setting has it.
            settings: values by short name.
        """
        return apply_overrides(self, {**(changes or {}), **settings}, origin=type(self).__name__)


def apply_overrides(config: S, overrides: Mapping[str, Any], *, origin: str) -> S:
    """The config with some settings changed; `origin` says in messages where the changes came from.

    A key is a full name (`optim.lr`), a short name that only one setting has (`lr`), or a section (`optim`).
    The value of a section is a mapping of the names in it, or a config that takes its place. Where two keys
    name the same setting, the later one wins.
    """
    return _apply(config, overrides, config, "", origin) if overrides else config


def _apply(config: Any, overrides: Mapping[str, Any], root: Any, prefix: str, origin: str) -> Any:
    """One section of the root with some settings changed; `prefix` is its dotted name and a dot."""
    changes: dict[str, Any] = {}
    in_sections: dict[str, dict[str, Any]] = {}
    for name, value in overrides.items():
        field, _, rest = _find_setting(config, str(name), root, prefix, origin).partition(".")
        if rest:
            in_sections.setdefault(field, {})[rest] = value
        elif not _is_section(getattr(config, field)):
            field_type = _field_types(type(config))[field]  # type: ignore[arg-type]
            changes[field] = convert_value(value, field_type, f"{origin}: the setting {prefix}{field}")
        elif isinstance(value, Mapping):
            in_sections.setdefault(field, {}).update(value)
        elif _is_section(value):
            changes[field] = value
        else:
            settings = [each for each, _, _ in describe(getattr(config, field))]
            if not settings:
                raise Problem(f"{origin}: the section {prefix}{field} has no settings; leave it out.")
            example = f"{prefix}{field}.{settings[0]}"
            raise Problem(
                f"{origin}: {prefix}{field} is a section; set what is in it by name, such as {example}."
            )
    for field, inside in in_sections.items():
        whole = changes.get(field, getattr(config, field))
        changes[field] = _apply(whole, inside, root, f"{prefix}{field}.", origin)
    return dataclasses.replace(config, **changes)


def _find_setting(config: Any, name: str, root: Any, prefix: str, origin: str) -> str:
    """The full name, within `config`, of the one setting or section that is called so."""
    found = _match(config, name)
    if not found:
        raise Problem(f"{origin}: there is no setting {prefix + name!r}; {_suggest(root, prefix + name)}")
    if len(found) > 1:
        names = " or ".join(prefix + each for each in found)
        raise Problem(f"{origin}: there is more than one setting {name!r}; say {names}.")
    return found[0]


def _match(config: Any, name: str) -> list[str]:
    """The full names that a name may mean: itself, or every setting whose full name ends in it."""
    names = dict(_iterate_fields(config))
    if name in names:
        return [name]
    return [each for each, value in names.items() if each.endswith(f".{name}") and not _is_section(value)]


def _suggest(config: Any, name: str) -> str:
    """What to say instead of an unknown name."""
    short = name.rpartition(".")[2]
    elsewhere = _match(config, short)
    if elsewhere:
        return f"did you mean {' or '.join(elsewhere)}?"
    for setting, words in SYNONYMS.items():
        meant = [" or ".join(_match(config, each)) for each in setting.split(" and ")]
        if short in words.split() and all(meant):
            verb = f"{REMARKS[short]}: set" if short in REMARKS else "it is called"
            return f"{verb} {' and '.join(meant)}."
    settings = [each for each, _, _ in describe(config)]
    sections = [each for each, value in _iterate_fields(config) if _is_section(value)]
    shorts = [each.rpartition(".")[2] for each in settings]
    closest = find_closest(name, [*settings, *sections, *shorts])
    if closest is not None:
        return f"did you mean {' or '.join(_match(config, closest))}?"
    return f"it knows {', '.join(settings)}." if settings else "it has none at all."


def _iterate_fields(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Full name and value of every setting and every section, a section before what is in it."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        yield prefix + field.name, value
        if _is_section(value):
            yield from _iterate_fields(value, f"{prefix}{field.name}.")


def _is_section(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


@functools.cache
def _field_types(config_class: type) -> dict[str, Any]:
    return typing.get_type_hints(config_class)


def has_setting(config: Any, name: str) -> bool:
    """Whether exactly one setting has this full or short name."""
    found = _match(config, name)
    return len(found) == 1 and not _is_section(dict(_iterate_fields(config))[found[0]])


def get_setting(config: Any, name: str) -> Any:
    """The value of the setting with this full or short name."""
    return dict(_iterate_fields(config))[_find_setting(config, name, config, "", type(config).__name__)]


def describe(config: Any) -> list[tuple[str, Any, str]]:
    """Full name, value and help of every setting, in order."""
    rows = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if _is_section(value):
            rows += [(f"{field.name}.{name}", inner, help) for name, inner, help in describe(value)]
        else:
            rows.append((field.name, value, field.metadata["help"]))
    return rows


def to_dict(config: Any) -> dict[str, Any]:
    """The config as JSON values: sections are dictionaries, tuples are lists."""
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {name: to_dict(value) if _is_section(value) else _to_json(value) for name, value in values.items()}


def _to_json(value: Any) -> Any:
    return [_to_json(each) for each in value] if isinstance(value, tuple) else value


def from_dict(config_class: type[S], values: Mapping[str, Any], *, origin: str) -> S:
    """The config that `to_dict` wrote; settings that are not in it have their defaults."""
    return apply_overrides(config_class(), values, origin=origin)


def to_yaml(config: Any) -> str:
    """The config as YAML with every setting's help beside it; `read_config` and `apply_overrides` read it."""
    return "\n".join(_yaml_lines(config)).strip("\n") + "\n"


def _yaml_lines(config: Any) -> Iterator[str]:
    after_section = False
    for field in dataclasses.fields(config):
        value, help = getattr(config, field.name), " ".join(field.metadata.get("help", "").split())
        if _is_section(value) or after_section:
            yield ""
        after_section = _is_section(value)
        if after_section:
            inside = [f"  {line}" if line else "" for line in _yaml_lines(value)]
            yield from [f"# {help}"] if help else []
            yield f"{field.name}:" if inside else f"{field.name}: {{}}"
            yield from inside
        else:
            yield f"{field.name}: {_yaml_value(value)}  # {help}".rstrip(" #")


def _yaml_value(value: Any) -> str:
    """The value on one line of YAML; text is quoted where it could be read as something else."""
    import yaml

    style = '"' if isinstance(value, str) and not re.fullmatch(r"[A-Za-z][\w./+-]*", value) else None
    text = yaml.safe_dump(
        _to_json(value), default_flow_style=True, default_style=style, width=math.inf, allow_unicode=True
    )
    return text.removesuffix("\n").removesuffix("\n...")


def require_choice(config: Any, name: str, allowed: Iterable[str]) -> None:
    """Refuse a value that is not among the allowed ones."""
    if getattr(config, name) not in allowed:
        raise Problem(f"The setting {name} is one of {', '.join(allowed)}, not {getattr(config, name)!r}.")


def require_at_least(config: Any, minimum: float, *names: str) -> None:
    """Refuse values below the minimum."""
    for name in names:
        if not getattr(config, name) >= minimum:  # refuses NaN, too
            raise Problem(f"The setting {name} must be at least {minimum:g}, not {getattr(config, name)}.")


def require_fraction(config: Any, *names: str) -> None:
    """Refuse values that are not between 0 and 1."""
    for name in names:
        if not 0 <= getattr(config, name) <= 1:
            raise Problem(f"The setting {name} must be between 0 and 1, not {getattr(config, name)}.")


def require_divisible_heads(config: Any) -> None:
    """Refuse a model dimension that is odd or no multiple of the number of heads."""
    require_at_least(config, 1, "model_dim", "heads")
    if config.model_dim % config.heads or config.model_dim % 2:
        wrong = f"{config.model_dim} of {config.heads}"
        raise Problem(f"The setting model_dim must be even and a multiple of heads, not {wrong}.")


def parse_assignments(assignments: list[str] | None) -> dict[str, str]:
    """{"key": "value"} from ["key=value"]."""
    overrides = {}
    for assignment in assignments or []:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise Problem(f"--set takes key=value, not {assignment!r}.")
        overrides[name.strip()] = value.strip()
    return overrides


def parse_numbers(text: str, name: str) -> list[int]:
    """[1, 2, 5] from "1,2,5"; `name` is what the message calls the text."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise Problem(f"{name} takes whole numbers above 0, separated by commas, not {text!r}.")
    return found


def parse_options(arguments: list[str]) -> dict[str, str]:
    """{"key_of_two": "value"} from ["--key-of-two", "value"] or ["--key-of-two=value"]."""
    overrides, rest = {}, iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if not name.startswith("--"):
            raise Problem(f"There is nothing to do with {argument!r}; settings are given as --name VALUE.")
        if not equals:
            value = next(rest, "")
            if not value or value.startswith("--"):
                raise Problem(f"The option {name} needs a value.")
        overrides[name.removeprefix("--").replace("-", "_")] = value
    return overrides


def read_config(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    import yaml

    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Problem(f"The configuration {path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Problem(f"The configuration {path} is not YAML: {' '.join(str(error).split())}.") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise Problem(f"The configuration {path} must hold `setting: value` lines.")
    return loaded
