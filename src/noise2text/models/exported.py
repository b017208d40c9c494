"""Exported models: a model folder whose network is ONNX graphs, and onnxruntime the engine that runs them.

    config.json              as of any model, and the engine: its precision and its graphs' fingerprints
    encode.onnx, step.onnx   the network (and logits.onnx, where the network scores the tokens itself)
    model.safetensors        what stays torch's: embeddings, length classes, an adapted schedule

Everything else is as it was: the recipe builds the system, and the sessions take the network's place in it.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from noise2text.core.errors import Problem
from noise2text.models import DiffusionModel, Model
from noise2text.nn.denoiser import Denoiser, DenoiserWrapper

if TYPE_CHECKING:
    from noise2text.acceleration.onnx_runtime import OnnxRuntimeConfig

__all__ = ["check_device", "find_network", "load_onnx_network", "replace_network"]


def find_network(model: Model) -> Denoiser:
    """The network that a system's steps run, within all that is wrapped around it."""
    if not isinstance(model, DiffusionModel):
        raise Problem(
            f"{type(model).__name__} cannot be exported: it is no diffusion model, and has no steps for it."
        )
    network = model.denoiser
    while isinstance(network, DenoiserWrapper):
        network = network.denoiser
    if type(network).constrain is not Denoiser.constrain:
        raise Problem(
            f"{type(network).__name__} cannot be exported: it embeds what is given by a table of its own, "
            "which graphs do not hold; use the model as it is."
        )
    return network


def replace_network(model: Model, network: Denoiser) -> None:
    """Put another network into the place of a system's own."""
    old = find_network(model)
    for module in list(model.modules()):
        if getattr(module, "denoiser", None) is old:
            module.denoiser = network


def load_onnx_network(model: Model, folder: Path, engine: OnnxRuntimeConfig) -> None:
    """Put the ONNX sessions of a folder in the place of the model's network."""
    from noise2text.acceleration.onnx_runtime import OnnxDenoiser

    replace_network(model, OnnxDenoiser.open(find_network(model).embedding, folder, engine))


def check_device(
    engine: OnnxRuntimeConfig, *, device: str | torch.device | None, precision: str
) -> torch.device:
    """The CPU, if an exported model can run as it is asked to."""
    from noise2text.acceleration.int8 import has_fast_int8

    place = torch.device(device or "cpu")
    if place.type != "cpu":
        raise Problem(f"An exported model runs on a CPU, not on {place}; use the model that it was made of.")
    if precision not in ("auto", engine.precision):
        raise Problem(f"This model was exported in {engine.precision}; export it again for {precision}.")
    if (
        engine.precision == "int8"
        and platform.machine().lower() in ("x86_64", "amd64")
        and not has_fast_int8()
    ):
        # Without VNNI such a CPU adds 8-bit products in 16 bits, and cuts off what does not fit.
        raise Problem("This CPU lacks exact sums of 8-bit products (VNNI); export the model in float32.")
    return place
