"""Checkpoints of DiffuSeq's released code (Shark-NLP/DiffuSeq), as model folders of the recipe diffuseq.

That code writes one folder per run: `ema_0.9999_….pt` (the averaged weights of its TransformerNetModel),
`training_args.json`, and the files of BERT's tokenizer. The weights are read by `torch.load` without running
code, and every one of them has a place in `ReleasedDiffuSeqTransformer`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from noise2text.core.errors import Problem, abbreviate
from noise2text.core.json_files import read_json_object
from noise2text.data.tokenizer import Tokenizer, load_wordpiece
from noise2text.models.base import Model
from noise2text.models.folder import save
from noise2text.models.limits import build_for_weights
from noise2text.models.model_files import write_new_model_folder
from noise2text.models.registry import Recipe, find_recipe
from noise2text.models.torch_file import read_torch_file, require_weights
from noise2text.nn.released_diffuseq_transformer import TIME_DIM

__all__ = ["import_diffuseq"]

_HEAD_DIM = 64
"""The dimension of a head in every released BERT; checkpoints do not say how many heads they have."""
_NEEDED_ARGUMENTS = {
    "predict_xstart": True,
    "learn_sigma": False,
    "rescale_timesteps": True,
    "noise_schedule": "sqrt",
    "hidden_t_dim": TIME_DIM,
    "vocab": "bert",
}
"""Arguments of the released runs that decide what the network means."""
_WEIGHTS = [
    (r"^lm_head\.bias$", "embedding.bias"),
    (r"^time_embed\.0\.", "time_embedding.mlp.0."),
    (r"^time_embed\.2\.", "time_embedding.mlp.3."),
    (r"^input_up_proj\.", "input_projection."),
    (r"^output_down_proj\.", "output_projection."),
    (r"^position_embeddings\.", "position_embedding."),
    (r"^LayerNorm\.", "norm."),
    (r"^input_transformers\.layer\.(\d+)\.", r"layers.\1."),
    (r"\.attention\.output\.dense\.", ".self_attention.output_projection."),
    (r"\.attention\.output\.LayerNorm\.", ".self_attention_norm."),
    (r"\.intermediate\.dense\.", ".feed_forward.0."),
    (r"\.output\.dense\.", ".feed_forward.3."),
    (r"\.output\.LayerNorm\.", ".feed_forward_norm."),
]
"""The names of the released weights and ours, replaced from top to bottom."""


def import_diffuseq(old: Path, new: Path) -> None:
    """Write the model of a checkpoint of DiffuSeq's released code to a new folder.

    Args:
        old: the run's folder, of which the newest checkpoint is taken, or one of its .pt files.
        new: the folder to write.
    """
    with write_new_model_folder(new) as draft:
        file = old if old.suffix == ".pt" else _find_newest(old)
        arguments = _read_arguments(file.parent / "training_args.json")
        weights = _read_weights(file)
        tokenizer, tokenizer_settings = _read_tokenizer(file.parent)
        vocabulary = len(weights["word_embedding.weight"])
        if len(tokenizer) != vocabulary:
            raise Problem(
                f"{file} has {vocabulary:,} embeddings, but the tokenizer beside it has {len(tokenizer):,} "
                f"tokens: copy the tokenizer's files of that run."
            )
        recipe = find_recipe("diffuseq")
        try:
            config = recipe.preset().replace(_find_settings(arguments, weights, file) | tokenizer_settings)
            model = _build(recipe, config, tokenizer, weights, file)
            model.load_state_dict(_rename_weights(weights, arguments["seq_len"]))
        except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise Problem(
                f"{file} does not fit its training_args.json ({abbreviate(str(error))}): copy both again."
            ) from error
        save(draft, model, recipe=recipe.name, config=config)


def _build(
    recipe: Recipe, config: Any, tokenizer: Tokenizer, weights: Mapping[str, Tensor], file: Path
) -> Model:
    """The untrained model, no larger than its weights explain."""
    elements = sum(tensor.numel() for tensor in weights.values())
    path = file.parent / "training_args.json"
    return build_for_weights(recipe, config, tokenizer, elements=elements, tensors=len(weights), path=path)


def _find_newest(folder: Path) -> Path:
    """The averaged weights with the highest step in a run's folder."""
    steps = {path: re.fullmatch(r"(?:ema_[\d.]+_|model)(\d+)\.pt", path.name) for path in folder.glob("*.pt")}
    found = [(int(match[1]), path) for path, match in steps.items() if match]
    if not found:
        raise Problem(f"There is no ema_….pt in {folder}: name the folder of a run of DiffuSeq's code.")
    return max(found)[1]


def _read_arguments(path: Path) -> dict[str, Any]:
    try:
        arguments = read_json_object(path)
        sizes = {name: int(arguments[name]) for name in ("seq_len", "diffusion_steps")}
    except (Problem, ValueError, TypeError, KeyError, OverflowError) as error:
        raise Problem(
            f"{path} is missing or lacks what a checkpoint needs ({error}): copy it from the run's folder."
        ) from error
    for name, needed in _NEEDED_ARGUMENTS.items():
        if arguments.get(name, needed) != needed:
            raise Problem(f"{path}: {name} is {str(arguments[name])[:80]}; only {needed} can be imported.")
    return arguments | sizes


def _read_weights(file: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint, read without running code from it."""
    plain = require_weights(read_torch_file(file), file, named="an ema_….pt of DiffuSeq's code")
    needed = ("word_embedding.weight", "position_embeddings.weight", "input_up_proj.0.weight")
    missing = [name for name in needed if name not in plain]
    if missing:
        raise Problem(f"{file} has no {missing[0]}; name an ema_….pt of DiffuSeq's code.")
    return plain


def _read_tokenizer(folder: Path) -> tuple[Tokenizer, dict[str, Any]]:
    """BERT's tokenizer, which that code saves beside its checkpoints, and its settings."""
    vocabulary = folder / "vocab.txt"
    if vocabulary.exists():
        path = folder / "tokenizer_config.json"
        saved = read_json_object(path) if path.exists() else {}
        lowercase = bool(saved.get("do_lower_case", True))
        settings = {"tokenizer": "wordpiece", "vocabulary_file": str(vocabulary), "lowercase": lowercase}
        return load_wordpiece(vocabulary, lowercase=lowercase), settings
    if (folder / "tokenizer.json").exists():
        return Tokenizer.load(folder / "tokenizer.json"), {}
    raise Problem(f"{folder} has no vocab.txt and no tokenizer.json: copy BERT's vocab.txt there.")


def _find_settings(arguments: Mapping[str, Any], weights: Mapping[str, Tensor], file: Path) -> dict[str, Any]:
    """The settings of the recipe for these weights."""
    model_dim, embedding_dim = weights["input_up_proj.0.weight"].shape
    layers = {name.split(".")[2] for name in weights if name.startswith("input_transformers.layer.")}
    if model_dim % _HEAD_DIM:
        raise Problem(f"{file} has states of dimension {model_dim}; BERT's are a multiple of {_HEAD_DIM}.")
    text = arguments["seq_len"] - 5  # the special tokens of ReleasedDiffuSeqLayout
    return {
        "model.network": "released",
        "model_dim": model_dim,
        "embedding_dim": embedding_dim,
        "ffn_dim": len(weights["input_transformers.layer.0.intermediate.dense.weight"]),
        "heads": model_dim // _HEAD_DIM,
        "layers": len(layers),
        "dropout": float(arguments.get("dropout", 0.1)),
        "max_source": text - text // 2,
        "max_target": text // 2,
        "num_timesteps": arguments["diffusion_steps"],
        "generation.steps": arguments["diffusion_steps"],
        "loss_positions": "released",
    }


def _rename_weights(weights: Mapping[str, Tensor], positions: int) -> dict[str, Tensor]:
    """The weights by our names, with so many positions; queries, keys and values become one matrix."""
    # The table is in the file twice, as the embeddings and as the head that shares them, and only the first
    # is averaged. The released code loads the head last, so its values are those that it generates with.
    table = weights.get("lm_head.weight", weights["word_embedding.weight"])
    renamed = {"embedding.weight": table}
    left_out = ("word_embedding.weight", "lm_head.weight", "position_ids")
    for name, tensor in weights.items():
        if name in left_out or ".attention.self." in name:
            continue
        for pattern, replacement in _WEIGHTS:
            name = re.sub(pattern, replacement, name)
        renamed[name] = tensor
    for name in weights:
        match = re.fullmatch(r"input_transformers\.layer\.(\d+)\.attention\.self\.query\.(\w+)", name)
        if match:
            parts = [weights[name.replace(".query.", f".{part}.")] for part in ("query", "key", "value")]
            renamed[f"layers.{match[1]}.self_attention.qkv_projection.{match[2]}"] = torch.cat(parts)
    renamed["position_embedding.weight"] = renamed["position_embedding.weight"][:positions]
    return {f"denoiser.{name}": tensor for name, tensor in renamed.items()}
