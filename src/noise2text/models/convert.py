"""Older model folders, brought up to today's format, and smaller files of today's models.

Format 1 (versions before 0.2) had one flat list of settings and other names for settings and weights. Folders
of today's format may have the old name of a recipe. The values are the same, so a converted model gives the
same texts.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from noise2text.core.config import apply_overrides, describe
from noise2text.core.errors import Problem
from noise2text.core.files import write_atomically
from noise2text.core.json_files import read_json_object, read_ordinary_file, to_json
from noise2text.core.weight_storage import compress_weights
from noise2text.core.weights_file import read_weights
from noise2text.models.card import CARD_FILE
from noise2text.models.folder import FORMAT, describe_config
from noise2text.models.model_files import (
    CONFIG_FILE,
    GENERATION_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    open_model_files,
    write_model_files,
    write_new_model_folder,
)
from noise2text.models.registry import RENAMED_RECIPES, find_recipe

__all__ = ["convert_folder", "convert_weight_name", "store_weights"]

_WEIGHT_NAMES = [
    (r"^writer\.", "network."),
    (r"\beditor\.", "transformer."),
    (r"\bspace\.table$", "embedding.weight"),
    (r"\bforeign\.table$", "source_embedding.weight"),
    (r"\bspace\.", "embedding."),
    (r"\battention\.project\.", "self_attention.qkv_projection."),
    (r"\battention\.merge\.", "self_attention.output_projection."),
    (r"\battention_norm\.", "self_attention_norm."),
    (r"\bcross\.project\.", "cross_attention.query_projection."),
    (r"\bcross\.merge\.", "cross_attention.output_projection."),
    (r"\bcross_norm\.", "cross_attention_norm."),
    (r"\bcross\.", "key_value_projection."),
    (r"\bfeed\.", "feed_forward."),
    (r"\bfeed_norm\.", "feed_forward_norm."),
    (r"\bpositions\.", "position_embedding."),
    (r"\b(project|up)\.", "input_projection."),
    (r"\b(out|down)\.", "output_projection."),
    (r"\bscores\.", "projection."),
    (r"\btime\.network\.", "time_embedding.mlp."),
    (r"^(lengths\.)?classes\.", r"\1output_projection."),
    (r"\bdeletes\.", "deletion_head."),
    (r"\bopens\.", "placeholder_head."),
    (r"\bschedule\.sums$", "schedule.loss_sums"),
    (r"\bschedule\.table$", "schedule.alpha_bars"),
    (r"\battend\.", "key_projection."),
    (r"\bforwards\.", "forward_layers."),
    (r"\bbackwards\.", "backward_layers."),
    (r"\binto\.", "latent_projection."),
]

_SETTINGS = {
    "steps": "optim.steps",
    "tokens": "max_tokens",
    "learning_rate": "lr",
    "decay": "lr_schedule",
    "clip": "clip_norm",
    "ema": "ema_decay",
    "average": "average_best",
    "width": "model_dim",
    "embedding": "embedding_dim",
    "ffn": "ffn_dim",
    "scratch": "from_scratch",
    "diffusion_steps": "num_timesteps",
    "dgs_max": "max_dgs",
    "factor": "noise_factor",
    "length_factor": "length_loss_weight",
    "times": "time_sampler",
    "coverage": "loss_positions",
    "aligned": "align_targets",
    "weigh": "loss_weighting",
    "least_signal": "min_alpha_bar",
    "unconditional": "source_dropout",
    "predict": "parameterization",
    "words": "word_boundary",
    "reach": "max_word_tokens",
    "noise_low": "sigma_min",
    "noise_high": "sigma_max",
    "warp_stride": "warp_bin_size",
    "warp_least": "warp_min_count",
    "refit_first": "refit_start",
    "refit_stride": "refit_bin_size",
    "refit_least": "refit_min_count",
    "clip_margin": "noise_clip_margin",
    "clip_every": "noise_clip_every",
    "most": "max_placeholders",
    "from_nothing": "empty_draft_rate",
    "initial": "init_std",
    "kl": "kl_weight",
    "kernel_v": "kernel_variance",
    "kernel_r": "kernel_length_scale",
    "batch": "batch_size",
    "normalise": "normalize",
}
_DROPPED = {"optimizer", "activation", "generation_steps", "generation_stop_early", "skip", "order", "losses"}
_GENERATION = {
    "factor": "sampling_noise_factor",
    "guidance": "guidance_weight",
    "told": "min_timestep",
    "scalar": "latent_noise_scale",
}
_GENERATION_VALUES = {("select", "weighed"): "weighted-mbr", ("solver", "single"): "ddim"}


def convert_folder(old: Path, new: Path) -> None:
    """Write the model or classifier of an older folder to a new folder in today's format."""
    with write_new_model_folder(new) as draft:
        _convert(old, draft)


def store_weights(old: Path, new: Path, dtype: str) -> None:
    """Write the model of a folder to a new folder, with its weights stored in another type."""
    config = read_json_object(old / CONFIG_FILE, missing="name the folder of a model")
    if config.get("format") != FORMAT or config.get("recipe") in RENAMED_RECIPES:
        raise Problem(f"The model in {old} has an older format: convert it first, without --weights.")
    if "engine" in config:
        raise Problem(f"{old} is an exported model: its network is in its graphs, not in weights.")
    with open_model_files(old) as files:
        files.require_unchanged()
        weights = compress_weights(files.weights.read(), dtype)
    with write_new_model_folder(new) as draft:
        write_model_files(draft, weights, files.texts)
        _copy_card(old, draft)


def _convert(old: Path, new: Path) -> None:
    config = read_json_object(old / CONFIG_FILE, missing="name the folder of a model")
    if config.get("format") == FORMAT and config.get("recipe") in RENAMED_RECIPES:
        return _rename_recipe(old, new, config)
    if config.get("format") == FORMAT:
        raise Problem(
            f"The model in {old} has today's format ({FORMAT}) already: use it as it is, or store it smaller "
            f"with --weights."
        )
    if config.get("format") != 1:
        raise Problem(f"{old / 'config.json'} is not a noise2text configuration that can be converted.")
    if "engine" in config:
        raise Problem(f"{old} is an exported model: convert the original model and export that.")
    try:
        converted = _convert_classifier(config) if "classifier" in config else _convert_config(old, config)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Problem(
            f"{old / CONFIG_FILE} cannot be converted ({type(error).__name__}: {error}); was it changed by "
            f"hand?"
        ) from error
    weights = read_weights(old / WEIGHTS_FILE)
    renamed = {convert_weight_name(name): tensor for name, tensor in weights.items()}
    texts = {name: to_json(value) for name, value in converted.items()}
    _write_converted(old, new, renamed, texts)


def _rename_recipe(old: Path, new: Path, config: dict[str, Any]) -> None:
    """Copy the files of a folder of today's format with today's name of its recipe."""
    weights = read_weights(old / WEIGHTS_FILE)
    for path in old.iterdir():
        if path.is_file():  # no pipe, on which one would wait; checkpoints of the old name are of no use
            shutil.copyfile(path, new / path.name)
    renamed = config | {"recipe": RENAMED_RECIPES[config["recipe"]]}
    _write_converted(old, new, weights, {CONFIG_FILE: to_json(renamed)})


def _write_converted(old: Path, new: Path, weights: Mapping[str, Tensor], texts: Mapping[str, bytes]) -> None:
    """Write the weights and files, with the tokenizer and the card of the old folder."""
    tokenizer = old / TOKENIZER_FILE  # a classifier has none
    copied = {TOKENIZER_FILE: read_ordinary_file(tokenizer)} if tokenizer.exists() else {}
    write_model_files(new, weights, {**texts, **copied})
    _copy_card(old, new)


def _copy_card(old: Path, new: Path) -> None:
    """Copy the card of a folder that has one."""
    if (old / CARD_FILE).exists():
        card = read_ordinary_file(old / CARD_FILE)
        write_atomically(new / CARD_FILE, lambda path: path.write_bytes(card))


def convert_weight_name(name: str) -> str:
    """Today's name of a weight of format 1; the weights of a Hugging Face network keep theirs."""
    own, separator, foreign = name.partition(".model.") if name.startswith("writer.") else (name, "", "")
    own += "." if separator else ""
    for pattern, replacement in _WEIGHT_NAMES:
        own = re.sub(pattern, replacement, own)
    return own.removesuffix(".") + separator + foreign if separator else own


def _convert_config(folder: Path, config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """config.json and generation_config.json of a model."""
    name, settings = str(config.get("recipe")), config.get("settings")
    recipe = find_recipe(RENAMED_RECIPES.get(name, name))
    if not isinstance(settings, dict):
        raise Problem(f"{folder / 'config.json'} has no settings; was it written by another program?")
    converted = recipe.preset()
    generation = {
        _GENERATION.get(name, name): _GENERATION_VALUES.get((name, value), value)
        for name, value in read_json_object(folder / GENERATION_FILE).items()
    }
    changes = _convert_settings(settings, converted) | {f"generation.{k}": v for k, v in generation.items()}
    if recipe.name == "seqdiffuseq":
        changes["network"] = "difformer"  # which it had then
    converted = apply_overrides(converted, changes, origin=str(folder))
    return {
        "config.json": describe_config(recipe.name, converted, int(config["vocabulary"])),
        "generation_config.json": dataclasses.asdict(converted.generation),
    }


def _convert_settings(settings: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """The settings of format 1 by today's names; those that only set generation defaults are left out."""
    known = {name.rpartition(".")[2] for name, _, _ in describe(config) if not name.startswith("generation.")}
    anchor = {"anchor": "anchor_distance" if "anchor_distance" in known else "anchor_weight"}
    names = {old: (_SETTINGS | anchor).get(old, old) for old in settings if old not in _DROPPED}
    found = {new: settings[old] for old, new in names.items() if new.rpartition(".")[2] in known}
    if found.get("acceleration") == "recorded":
        found["acceleration"] = "cuda-graphs"
    if "losses" in settings:
        chosen = settings["losses"].split("+")
        found |= {f"{term}_weight": float(term in chosen) for term in ("vlb", "anchor", "rounding")}
    if settings.get("skip"):
        found["parameterization"] = f"residual-{found['parameterization']}"
    if settings.get("order") == "staggered":
        found["schedule"] = "position-sigmoid"
    return found


def _convert_classifier(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """config.json of a classifier for guidance."""
    settings = {_SETTINGS.get(name, name): value for name, value in config["classifier"].items()}
    settings["steps"] = settings.pop("optim.steps")
    return {"config.json": config | {"format": FORMAT, "classifier": settings}}
