"""Exported models: model folders whose network is ONNX graphs, which onnxruntime runs.

    config.json              as of any model, and the engine: its precision and the fingerprints of its graphs
    encode.onnx, step.onnx   the network (and logits.onnx, where the network computes the logits itself)
    model.safetensors        the weights that stay in torch: embeddings, length predictor, an adapted schedule

The recipe builds the model as usual; ONNX sessions then replace its network.
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
    """The network of a diffusion model, without the denoisers that wrap it."""
    if not isinstance(model, DiffusionModel):
        raise Problem(
            f"{type(model).__name__} cannot be exported: export a diffusion model, such as difformer."
        )
    network = model.denoiser
    while isinstance(network, DenoiserWrapper):
        network = network.denoiser
    if type(network).constrain is not Denoiser.constrain:
        raise Problem(
            f"{type(network).__name__} cannot be exported: it has a second table of embeddings for given "
            "tokens, which the ONNX graphs lack; use the model as it is."
        )
    return network


def replace_network(model: Model, network: Denoiser) -> None:
    """Replace the network of a model."""
    old = find_network(model)
    for module in list(model.modules()):
        if getattr(module, "denoiser", None) is old:
            module.denoiser = network


def load_onnx_network(model: Model, folder: Path, engine: OnnxRuntimeConfig) -> None:
    """Replace the network of the model by the ONNX sessions of a folder."""
    from noise2text.acceleration.onnx_runtime import OnnxDenoiser

    replace_network(model, OnnxDenoiser.open(find_network(model).embedding, folder, engine))


def check_device(
    engine: OnnxRuntimeConfig, *, device: str | torch.device | None, precision: str
) -> torch.device:
    """The CPU, if an exported model can run on this device and in this precision."""
    from noise2text.acceleration.int8 import has_fast_int8

    requested = torch.device(device or "cpu")
    if requested.type != "cpu":
        raise Problem(
            f"An exported model runs on a CPU, not on {requested}; use the model that it was exported from."
        )
    if precision not in ("auto", engine.precision):
        raise Problem(f"This model was exported in {engine.precision}; export it again for {precision}.")
    if (
        engine.precision == "int8"
        and platform.machine().lower() in ("x86_64", "amd64")
        and not has_fast_int8()
    ):
        # Without VNNI such a CPU adds 8-bit products in 16 bits, with saturation.
        raise Problem("This CPU cannot add 8-bit products exactly (no VNNI); export the model in float32.")
    return requested
