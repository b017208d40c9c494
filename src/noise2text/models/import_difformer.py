"""Checkpoints of Difformer's released code (zhjgao/difformer), as model folders of the recipe difformer.

That code is a plug-in of fairseq. A run's folder has checkpoints (`checkpoint_best.pt`: arguments and
weights). The folder of its data has the joined dictionary (`dict.de.txt`), which has to be copied beside the
checkpoint. The file is read without running its code, and every weight has a place in the recipe difformer
with `network=released`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from noise2text.core.errors import Problem, abbreviate
from noise2text.data.fairseq_dictionary import load_fairseq_dictionary
from noise2text.data.layouts.released_difformer import ReleasedDifformerLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.schedules import SCHEDULES
from noise2text.models.folder import save
from noise2text.models.limits import build_for_weights
from noise2text.models.model_files import write_new_model_folder
from noise2text.models.registry import find_recipe
from noise2text.models.torch_file import read_torch_file, require_weights

__all__ = ["import_difformer"]

_NAMED = "a checkpoint….pt of Difformer's code"
_NOT_READ = [
    "difformer.modules.EmbedNormPosition",  # set by the flags that we read
    "difformer.modules.SelfCondPosition",
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    "numpy.ndarray",  # the counts of a validation BLEU
    "numpy.dtype",
    "_codecs.encode",
]
"""What a checkpoint has besides plain values, and a model does not need."""
_NEEDED_ARGUMENTS: dict[str, tuple[Any, Any]] = {
    "embed_norm": (True, False),
    "embed_norm_affine": (True, False),
    "embed_norm_before_proj": (False, False),
    "self_cond": (True, False),
    "self_cond_before_proj": (False, False),
    "rescale_timesteps": (True, False),
    "vp_rf": (False, False),
    "pred_length_offset": (True, False),
    "share_all_embeddings": (True, False),
    "encoder_learned_pos": (True, False),
    "decoder_learned_pos": (True, False),
    "encoder_normalize_before": (False, False),
    "decoder_normalize_before": (False, False),
    "no_scale_embedding": (False, False),
    "no_token_positional_embeddings": (False, False),
    "layernorm_embedding": (False, False),
    "activation_fn": ("relu", "relu"),
}
"""Arguments that decide what the network means: the value of the released scripts, and the default."""
_FIRST_POSITION = 2
"""The first rows of fairseq's tables of positions are for padding."""
_WEIGHTS = [
    (r"^decoder\.output_projection\.weight$", "embedding.weight"),
    (r"^encoder\.embed_tokens\.weight$", "encoder.embedding.weight"),
    (r"^decoder\.embed_length\.weight$", "length_classes"),
    (r"^decoder\.embed_norm\.", "norm."),
    (r"^decoder\.self_cond_proj\.0\.", "combine.0."),
    (r"^decoder\.self_cond_proj\.2\.", "combine.3."),
    (r"^decoder\.embed_time\.0\.", "time_embedding.mlp.0."),
    (r"^decoder\.embed_time\.2\.", "time_embedding.mlp.3."),
    (r"\bproject_in_dim\.", "input_projection."),
    (r"\bproject_out_dim\.", "output_projection."),
    (r"\bembed_positions\.", "position_embedding."),
    (r"\.self_attn_layer_norm\.", ".self_attention_norm."),
    (r"\.encoder_attn_layer_norm\.", ".cross_attention_norm."),
    (r"\.final_layer_norm\.", ".feed_forward_norm."),
    (r"\.self_attn\.out_proj\.", ".self_attention.output_projection."),
    (r"\.encoder_attn\.out_proj\.", ".cross_attention.output_projection."),
    (r"\.encoder_attn\.q_proj\.", ".cross_attention.query_projection."),
    (r"\.fc1\.", ".feed_forward.0."),
    (r"\.fc2\.", ".feed_forward.3."),
    (r"^decoder\.", ""),
]
"""The names of the released weights and ours, replaced from top to bottom."""


def import_difformer(old: Path, new: Path) -> None:
    """Write the model of a checkpoint of Difformer's released code to a new folder.

    Args:
        old: the run's folder, of which checkpoint_best.pt is taken, or one of its .pt files.
        new: the folder to write.
    """
    with write_new_model_folder(new) as draft:
        file = old if old.suffix == ".pt" else old / "checkpoint_best.pt"
        weights, state = _read_checkpoint(file)
        try:
            arguments = _read_arguments(state, file)
            tokenizer = _read_dictionaries(file.parent, arguments)
            _require_same_size(tokenizer, weights, file)
            recipe = find_recipe("difformer")
            config = recipe.preset().replace(_find_settings(arguments, weights, file))
            elements = sum(tensor.numel() for tensor in weights.values())
            model = build_for_weights(
                recipe, config, tokenizer, elements=elements, tensors=len(weights), path=file
            )
            model.load_state_dict(_rename_weights(weights))
        except (RuntimeError, LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise Problem(
                f"{file} has not the arguments and weights of a run ({abbreviate(str(error))}): copy it "
                f"again."
            ) from error
        save(draft, model, recipe=recipe.name, config=config)


def _require_same_size(tokenizer: Tokenizer, weights: Mapping[str, Tensor], file: Path) -> None:
    """Refuse a dictionary that is not the one of these embeddings."""
    vocabulary = len(weights["encoder.embed_tokens.weight"])
    if len(tokenizer) != vocabulary:
        raise Problem(
            f"{file} has {vocabulary:,} embeddings, but the dictionary beside it has {len(tokenizer):,} "
            f"tokens: copy the dict.….txt of that run's data."
        )


def _read_checkpoint(file: Path) -> tuple[dict[str, Tensor], Mapping[Any, Any]]:
    """The weights in float32, and all that the file holds."""
    state = read_torch_file(file, plain_classes=[argparse.Namespace], not_read=_NOT_READ)
    if not isinstance(state, Mapping) or "model" not in state:
        raise Problem(f"{file} has no model; name {_NAMED}.")
    weights = require_weights(state["model"], file, named=_NAMED)
    needed = ("encoder.embed_tokens.weight", "decoder.embed_length.weight", "decoder.project_in_dim.weight")
    missing = [name for name in needed if name not in weights]
    if missing:
        raise Problem(f"{file} has no {missing[0]}; name {_NAMED}.")
    return {name: tensor.float() for name, tensor in weights.items()}, state


def _read_arguments(state: Mapping[Any, Any], file: Path) -> dict[str, Any]:
    """The arguments of the run: `args` before fairseq 0.11, and `cfg` since then."""
    sections = state.get("cfg")
    parts = [state.get("args")]
    if isinstance(sections, Mapping):
        parts += [sections.get("task"), sections.get("model")]
    arguments: dict[str, Any] = {}
    for part in parts:
        arguments |= vars(part) if isinstance(part, argparse.Namespace) else part or {}
    if arguments.get("arch", "difformer").partition("_")[0] != "difformer":
        raise Problem(f"{file} is a {arguments['arch']}; name {_NAMED}.")
    for name, (needed, default) in _NEEDED_ARGUMENTS.items():
        if arguments.get(name, default) != needed:
            flag = f"--{name.replace('_', '-')}"
            raise Problem(f"{file}: {flag} is {arguments.get(name, default)}; only {needed} can be imported.")
    if arguments.get("noise_schedule") not in SCHEDULES:
        raise Problem(
            f"{file}: --noise-schedule is {arguments.get('noise_schedule')}; one of {', '.join(SCHEDULES)} "
            f"can be imported."
        )
    return arguments


def _read_dictionaries(folder: Path, arguments: Mapping[str, Any]) -> Tokenizer:
    """The joined dictionary, which that code has under the names of both languages."""
    languages = [arguments.get(name) for name in ("source_lang", "target_lang")]
    paths = [path for each in languages if (path := folder / f"dict.{each}.txt").exists()]
    if not paths:
        raise Problem(
            f"{folder} has no dict.{languages[0]}.txt: copy fairseq's dictionaries (data-bin) there."
        )
    source, *target = [load_fairseq_dictionary(path) for path in paths]
    if target and source.fingerprint != target[0].fingerprint:
        raise Problem(f"{paths[0]} and {paths[1]} differ; only a joined dictionary can be imported.")
    return source


def _find_settings(arguments: Mapping[str, Any], weights: Mapping[str, Tensor], file: Path) -> dict[str, Any]:
    """The settings of the recipe for these weights."""
    heads = arguments["encoder_attention_heads"]
    if heads != arguments["decoder_attention_heads"]:
        raise Problem(
            f"{file} has not as many heads in its encoder as in its decoder: it cannot be imported."
        )
    model_dim, embedding_dim = weights["decoder.project_in_dim.weight"].shape
    added = _FIRST_POSITION + ReleasedDifformerLayout.num_special_tokens
    layers = {
        side: len({name.split(".")[2] for name in weights if name.startswith(f"{side}.layers.")})
        for side in ("encoder", "decoder")
    }
    return {
        "model.network": "released",
        "model_dim": model_dim,
        "embedding_dim": embedding_dim,
        "ffn_dim": len(weights["encoder.layers.0.fc1.weight"]),
        "heads": heads,
        "encoder_layers": layers["encoder"],
        "decoder_layers": layers["decoder"],
        "dropout": float(arguments.get("dropout", 0.1)),
        "vocabulary": len(weights["encoder.embed_tokens.weight"]),
        "max_source": len(weights["encoder.embed_positions.weight"]) - added,
        "max_target": len(weights["decoder.embed_positions.weight"]) - added,
        "num_timesteps": arguments["diffusion_steps"],
        "schedule": arguments["noise_schedule"],
        "noise_factor": float(arguments.get("rescaling_factor", 1.0)),
        "lengths": "around",
    }


def _rename_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights by our names; projections that are one matrix here are joined."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if name in ("encoder.version", "decoder.version", "decoder.embed_tokens.weight"):
            continue
        if re.search(r"\.(self_attn\.[qkv]|encoder_attn\.[kv])_proj\.", name):
            continue
        if name.endswith("embed_positions.weight"):
            tensor = tensor[_FIRST_POSITION:]
        for pattern, replacement in _WEIGHTS:
            name = re.sub(pattern, replacement, name)
        renamed[f"denoiser.{name}"] = tensor
    renamed["lengths.output_projection.weight"] = renamed.pop("denoiser.length_classes")
    for kind in ("weight", "bias"):
        renamed |= _join_projections(weights, kind)
    return renamed


def _join_projections(weights: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
    """The projections that are one matrix here: their weights or their biases, by our names."""
    joined: dict[str, Tensor] = {}
    num_layers = {"encoder": 0, "decoder": 0}
    for name in weights:
        match = re.fullmatch(rf"(encoder|decoder)\.layers\.(\d+)\.self_attn\.q_proj\.{kind}", name)
        if match:
            side, number = match.groups()
            parts = [weights[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            place = f"{side}.layers.{number}".removeprefix("decoder.")
            joined[f"denoiser.{place}.self_attention.qkv_projection.{kind}"] = torch.cat(parts)
            num_layers[side] += 1
    layers = range(num_layers["decoder"])
    names = [f"decoder.layers.{number}.encoder_attn.{part}_proj.{kind}" for part in "kv" for number in layers]
    joined[f"denoiser.key_value_projection.{kind}"] = torch.cat([weights[name] for name in names])
    return joined
