"""A trained Transformer to start from: its layers, and its embeddings in the diffusion's dimension.

The encoder and the decoder of Difformer and SeqDiffuSeq consist of the Transformer's layers, so that a
student can start from its teacher's. Only their embeddings differ: the Transformer's are as wide as its
states, the diffusion's have d channels. With √W·E = U·diag(s)·Rᵀ, E the teacher's table (V, W), and the d
largest of the singular values s,

    z₀ = √V · U,     P = P′ = R · diag(s) / √V,     Q ∝ Pᵀ,

so that P·z₀ is as near to √W·E as d channels allow, and is it for d = W: there the encoder says what the
teacher's says. The channels of z₀ have unit mean squares and do not correlate, as if drawn by chance, which
the schedules and the noise factor count on. Q's rows have unit norm on average. What the teacher has not (the
clock, the guess, the lengths) starts from chance.

So does padding where a canvas is filled with it. A teacher neither reads nor writes it, and lets it fall
together with all else that it never writes: most places of such a canvas would be one small z₀, and another
token's, too. It keeps the direction that it has by chance, and gets the size √d that tokens have on average.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import normalize

from noise2text.core.config import option
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import DiffusionModel
from noise2text.nn.encoder_decoder import EncoderDecoder
from noise2text.training.config import TrainingConfig

__all__ = ["StudentConfig", "initialize_from_teacher"]

NETWORK_PREFIX = "network."  # how the names of a Transformer's weights begin
POSITIONS = "encoder.position_embedding.weight", "position_embedding.weight"


@dataclass(frozen=True)
class StudentConfig(TrainingConfig):
    """What a recipe needs whose network can start from a Transformer's."""

    from_folder: str = option("", "start from the layers and embeddings of this trained transformer")
    tokenizer: str = option("bpe", "bpe, characters, wordpiece, or folder (from_folder's, as it is)")

    @property
    def tokenizers(self) -> tuple[str, ...]:
        return (*super().tokenizers, "folder")


@torch.no_grad()
def initialize_from_teacher(settings: StudentConfig, model: DiffusionModel) -> None:
    """Let the system start from the Transformer that its settings name, if they name one."""
    if not settings.from_folder:
        return
    assert isinstance(model.denoiser, EncoderDecoder)
    embedding, tokenizer = model.denoiser.embedding, model.tokenizer
    filler_tokens = sorted(
        set(model.layout.end_tokens) - {tokenizer.eos}
    )  # what fills a canvas after the end
    directions = normalize(embedding.weight[filler_tokens], dim=1)
    _copy_teacher(model.denoiser, tokenizer, Path(settings.from_folder))
    embedding.weight[filler_tokens] = directions * embedding.dim**0.5 / embedding.scale


@torch.no_grad()
def _copy_teacher(denoiser: EncoderDecoder, tokenizer: Tokenizer, folder: Path) -> None:
    """Let the denoiser start from the Transformer in the folder."""
    heads = _heads(folder)
    teacher_weights = _read(folder)
    if Tokenizer.load(folder / "tokenizer.json").fingerprint != tokenizer.fingerprint:
        raise Problem(
            f"The model in {folder} has other tokens than this corpus: set tokenizer to folder to take its, "
            f"and in `prepare`, too, if the corpus was prepared."
        )
    if heads != denoiser.heads:  # which no weight shows
        raise _shape_problem(folder, f"{heads} heads where this model has {denoiser.heads}")
    own = denoiser.state_dict()
    for name in filter(_is_layer_weight, own):
        _place(own[name], teacher_weights, name, folder)
    if any(_is_layer_weight(name) and name not in own for name in teacher_weights):
        raise _shape_problem(folder, "more layers than this model")
    for name in POSITIONS:  # the teacher's state at a position writes the token that is the student's there
        rows = teacher_weights[name][: len(own[name])]
        own[name][: len(rows)].copy_(rows)
    _copy_teacher_embeddings(denoiser, teacher_weights["embedding.weight"], folder)


def _copy_teacher_embeddings(denoiser: EncoderDecoder, table: Tensor, folder: Path) -> None:
    """Place the table (V, W) in d channels, and lead from there to the states and back."""
    vocabulary, width = table.shape
    dim = denoiser.embedding.dim
    if dim > min(vocabulary, width):
        raise Problem(
            f"The embeddings of {folder} have {min(vocabulary, width)} channels at the most: set embedding "
            f"to no more, not {dim}."
        )
    left, sizes, right = torch.linalg.svd(width**0.5 * table.double(), full_matrices=False)
    projection = right[:dim].T * sizes[:dim] / vocabulary**0.5  # (W, d)
    denoiser.embedding.weight.copy_(vocabulary**0.5 * left[:, :dim] / denoiser.embedding.scale)
    for input_projection in (denoiser.encoder.input_projection, denoiser.input_projection):
        _weight(input_projection).copy_(projection)
    _weight(denoiser.output_projection).copy_(projection.T / projection.square().sum(0).mean().sqrt())


def _heads(folder: Path) -> int:
    """The number of attention heads of a Transformer."""
    try:
        config = json.loads((folder / "config.json").read_text())
        if config["recipe"] != "transformer":
            raise Problem(
                f"The model in {folder} is no transformer, but {config['recipe']}: name the folder of one."
            )
        return int(config["settings"]["heads"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Problem(
            f"There is no whole model in {folder} ({error}); name the folder of a trained transformer."
        ) from error


def _read(folder: Path) -> Mapping[str, Tensor]:
    """The weights of a Transformer by the names that they have in its writer."""
    path = folder / "model.safetensors"
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise Problem(
            f"There is no whole model in {folder} ({error}); name the folder of a trained transformer."
        ) from error
    return {name.removeprefix(NETWORK_PREFIX): weight for name, weight in weights.items()}


def _place(own: Tensor, teacher_weights: Mapping[str, Tensor], name: str, folder: Path) -> None:
    if name not in teacher_weights:
        raise _shape_problem(folder, "fewer layers than this model")
    if teacher_weights[name].shape != own.shape:
        shapes = (" × ".join(map(str, weight.shape)) for weight in (teacher_weights[name], own))
        raise _shape_problem(folder, f"{next(shapes)} for {name} where this model has {next(shapes)}")
    own.copy_(teacher_weights[name])


def _shape_problem(folder: Path, difference: str) -> Problem:
    return Problem(
        f"The transformer in {folder} has {difference}: set model_dim, ffn_dim, heads, encoder_layers and decoder_layers "
        f"as it has them."
    )


def _is_layer_weight(name: str) -> bool:
    return name.startswith(("encoder.layers.", "layers.", "key_value_projection."))


def _weight(linear: nn.Module) -> Tensor:
    weight = linear.weight
    assert isinstance(weight, Tensor)
    return weight
