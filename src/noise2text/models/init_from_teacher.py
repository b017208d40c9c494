"""A trained Transformer to start from: its layers, and its embeddings in the diffusion's dimension.

The encoder and the decoder of Difformer, and of SeqDiffuSeq with `network=difformer`, consist of the
Transformer's layers, so that a student can start from its teacher's. Only the embeddings differ: the
Transformer's have the dimension W of its states, the diffusion's have d channels. With √W·E = U·diag(s)·Rᵀ, E
the teacher's embeddings (V, W), and the d largest of the singular values s,

    z₀ = √V · U,     P = P′ = R · diag(s) / √V,     Q ∝ Pᵀ,

so that P·z₀ is as close to √W·E as d channels allow, and equal to it for d = W: then the student's encoder
computes what the teacher's does. The channels of z₀ have unit mean squares and are uncorrelated, like random
embeddings, which the schedules and the noise factor assume. Q's rows have unit norm on average. Weights that
the teacher does not have (time embedding, self-conditioning, length predictor) start at random.

So does padding where it fills a canvas after the end. A teacher neither reads nor writes padding, and its
embedding collapses together with those of all other tokens that it never writes: most positions of such a
canvas would have one small z₀, shared with other tokens. Padding keeps its random direction, with the norm √d
that tokens have on average.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from noise2text.core.errors import Problem
from noise2text.core.json_files import read_json_object
from noise2text.core.weights_file import read_weights
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import DiffusionModel
from noise2text.models.model_files import WEIGHTS_FILE
from noise2text.nn.config import EncoderDecoderFromTeacherConfig
from noise2text.nn.encoder_decoder import EncoderDecoder

__all__ = ["initialize_from_teacher", "require_same_tokens"]

NETWORK_PREFIX = "network."  # the names of a Transformer's weights begin with it
POSITIONS = "encoder.position_embedding.weight", "position_embedding.weight"


class _StudentConfig(Protocol):
    """A recipe's config whose model may start from a Transformer."""

    @property
    def model(self) -> EncoderDecoderFromTeacherConfig: ...


@torch.no_grad()
def initialize_from_teacher(config: _StudentConfig, model: DiffusionModel) -> None:
    """Copy the weights of the Transformer in `config.model.from_folder` into the model."""
    assert isinstance(model.denoiser, EncoderDecoder)
    embedding, tokenizer = model.denoiser.embedding, model.tokenizer
    filler_tokens = sorted(set(model.layout.end_tokens) - {tokenizer.eos})  # they fill a canvas after the end
    directions = normalize(embedding.weight[filler_tokens], dim=1)
    _copy_teacher(model.denoiser, tokenizer, Path(config.model.from_folder))
    embedding.weight[filler_tokens] = directions * embedding.dim**0.5 / embedding.scale


def require_same_tokens(tokenizer: Tokenizer, teacher: Tokenizer, folder: Path) -> None:
    """Refuse a teacher, from the folder, whose tokens are not the student's."""
    if teacher.fingerprint != tokenizer.fingerprint:
        raise Problem(
            f"The model in {folder} has other tokens than this corpus: set tokenizer to folder to use its "
            f"tokenizer, and in `prepare`, too, if the corpus was prepared."
        )


@torch.no_grad()
def _copy_teacher(denoiser: EncoderDecoder, tokenizer: Tokenizer, folder: Path) -> None:
    """Copy the Transformer in the folder into the denoiser."""
    heads = _read_heads(folder)
    teacher_weights = _read_weights(folder)
    require_same_tokens(tokenizer, Tokenizer.load(folder / "tokenizer.json"), folder)
    if heads != denoiser.heads:  # no weight's shape depends on it
        raise _shape_problem(folder, f"{heads} heads where this model has {denoiser.heads}")
    own = denoiser.state_dict()
    for name in filter(_is_layer_weight, own):
        _copy_weight(own[name], teacher_weights, name, folder)
    if any(_is_layer_weight(name) and name not in own for name in teacher_weights):
        raise _shape_problem(folder, "more layers than this model")
    for name in POSITIONS:  # the teacher's state at a position predicts the token that the student has there
        rows = teacher_weights[name][: len(own[name])]
        own[name][: len(rows)].copy_(rows)
    _copy_teacher_embeddings(denoiser, teacher_weights["embedding.weight"], folder)


def _copy_teacher_embeddings(denoiser: EncoderDecoder, table: Tensor, folder: Path) -> None:
    """Copy the embeddings (V, W) into d channels, with the projections to the states and back."""
    vocabulary, width = table.shape
    dim = denoiser.embedding.dim
    if dim > min(vocabulary, width):
        raise Problem(
            f"The embeddings of {folder} have {min(vocabulary, width)} channels at the most: set "
            f"embedding_dim to no more, not {dim}."
        )
    left, sizes, right = torch.linalg.svd(width**0.5 * table.double(), full_matrices=False)
    projection = right[:dim].T * sizes[:dim] / vocabulary**0.5  # (W, d)
    denoiser.embedding.weight.copy_(vocabulary**0.5 * left[:, :dim] / denoiser.embedding.scale)
    for input_projection in (denoiser.encoder.input_projection, denoiser.input_projection):
        _weight(input_projection).copy_(projection)
    _weight(denoiser.output_projection).copy_(projection.T / projection.square().sum(0).mean().sqrt())


def _read_heads(folder: Path) -> int:
    """The number of attention heads of a Transformer."""
    try:
        contents = read_json_object(
            folder / "config.json",
            missing="there is no whole model; name the folder of a trained transformer",
        )
        if contents["recipe"] != "transformer":
            raise Problem(
                f"The model in {folder} is no transformer, but {contents['recipe']}: name the folder of one."
            )
        return int(contents["config"]["model"]["heads"])
    except (ValueError, KeyError, TypeError) as error:
        raise Problem(
            f"There is no whole model in {folder} ({error}); name the folder of a trained transformer."
        ) from error


def _read_weights(folder: Path) -> Mapping[str, Tensor]:
    """The weights of a Transformer by their names in its network."""
    weights = read_weights(folder / WEIGHTS_FILE)
    return {name.removeprefix(NETWORK_PREFIX): weight for name, weight in weights.items()}


def _copy_weight(own: Tensor, teacher_weights: Mapping[str, Tensor], name: str, folder: Path) -> None:
    if name not in teacher_weights:
        raise _shape_problem(folder, "fewer layers than this model")
    if teacher_weights[name].shape != own.shape:
        shapes = (" × ".join(map(str, weight.shape)) for weight in (teacher_weights[name], own))
        raise _shape_problem(folder, f"{next(shapes)} for {name} where this model has {next(shapes)}")
    own.copy_(teacher_weights[name])


def _shape_problem(folder: Path, difference: str) -> Problem:
    return Problem(
        f"The transformer in {folder} has {difference}: set model_dim, ffn_dim, heads, encoder_layers and "
        f"decoder_layers as it has them."
    )


def _is_layer_weight(name: str) -> bool:
    return name.startswith(("encoder.layers.", "layers.", "key_value_projection."))


def _weight(linear: nn.Module) -> Tensor:
    weight = linear.weight
    assert isinstance(weight, Tensor)
    return weight
