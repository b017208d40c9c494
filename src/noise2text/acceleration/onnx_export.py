"""A denoiser's network as ONNX graphs, which other engines than torch can run:

    encode   tokens, padding                                                     → states, keys, values
    step     z, timestep, padding (self_condition, source_padding, keys, values)  → z0, hidden
    logits   hidden                                                              → logits

A network whose source is on the canvas has no `encode`; one that rounds by its embeddings has no `logits`.
The numbers of sentences S and of their candidates C and the lengths of source and target are dynamic. The
rows of a step are (S, C, …), so that the graph knows which candidates share a sentence. Layers of `int8.py`
become integer products with one scale per row, as in torch (`onnx_operators.py`); the engine's own
quantization would have one scale per batch.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from noise2text.acceleration.onnx_operators import onnx_translations, use_int8_custom_op
from noise2text.core.errors import Problem
from noise2text.data.layouts.base import Source
from noise2text.nn.denoiser import Constraint, Denoiser, EncoderOutput, Estimate, NoiseLevel

__all__ = ["OnnxGraph", "export_onnx", "onnx_graphs"]

MAX_WEIGHT_BYTES = 2_000_000_000  # an ONNX file holds 2 GiB, and needs some of it for the graph

Axes = dict[int, str]
"""The dynamic axes of an input, and their names."""


@dataclass(frozen=True)
class OnnxGraph:
    """A function to export: the module, an example of each input, and the names of the outputs."""

    module: nn.Module
    inputs: Mapping[str, tuple[Tensor, Axes]]
    outputs: tuple[str, ...]


class _Unconstrained(Constraint):
    """A constraint that does nothing: the exported network gets a z that is already constrained."""

    def apply(self, x: Tensor) -> Tensor:
        return x


class _Exported(nn.Module):
    """A part of a network as a function of tensors alone."""

    def __init__(self, network: Denoiser) -> None:
        super().__init__()
        self.network = network


class _Encode(_Exported):
    def forward(self, tokens: Tensor, padding: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        encoded = self.network.encode(Source(tokens, padding))
        return encoded.states, encoded.keys, encoded.values


class _CanvasStep(_Exported):
    """A step of a network whose source is on the canvas."""

    def forward(self, z: Tensor, timestep: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        rows, hidden = z.flatten(0, 1), padding.flatten(0, 1)
        nothing = EncoderOutput(rows, hidden, rows, rows)
        return _step(
            self.network, rows, timestep=timestep, encoded=nothing, padding=hidden, self_condition=None
        )


class _SourceStep(_Exported):
    """A step of a network with cross-attention to the source."""

    def forward(
        self,
        z: Tensor,
        timestep: Tensor,
        padding: Tensor,
        self_condition: Tensor,
        source_padding: Tensor,
        keys: Tensor,
        values: Tensor,
    ) -> tuple[Tensor, Tensor]:
        encoded = EncoderOutput(keys, source_padding, keys, values)
        rows, before = z.flatten(0, 1), self_condition.flatten(0, 1)
        return _step(
            self.network,
            rows,
            timestep=timestep,
            encoded=encoded,
            padding=padding.flatten(0, 1),
            self_condition=before,
        )


class _Logits(_Exported):
    def forward(self, hidden: Tensor) -> Tensor:
        return self.network.logits(Estimate(hidden, hidden))


def _step(
    network: Denoiser,
    z: Tensor,
    *,
    timestep: Tensor,
    encoded: EncoderOutput,
    padding: Tensor,
    self_condition: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """ẑ₀ and the last hidden states; a network reads nothing of a noise level but its timestep."""
    estimate: Estimate = network(
        z,
        NoiseLevel(timestep, timestep, timestep),
        encoded,
        _Unconstrained(z, padding, padding),
        self_condition,
    )
    return estimate.z0, estimate.hidden


@torch.no_grad()
def onnx_graphs(network: Denoiser, *, timestep_per_position: bool) -> dict[str, OnnxGraph]:
    """The graphs of a network by name, with one timestep per position or one for all."""
    sentences, candidates, length, width = 2, 3, 5, 4  # different, so that the axes can be told apart
    source = Source(
        torch.zeros(sentences, width, dtype=torch.long), torch.zeros(sentences, width, dtype=torch.bool)
    )
    encoded = network.encode(source)
    z = torch.zeros(sentences, candidates, length, network.embedding.dim)
    rows, there = {0: "sentences", 1: "candidates", 2: "length"}, {0: "sentences", 1: "source_length"}
    timestep = torch.zeros(1, length if timestep_per_position else 1)
    canvas: dict[str, tuple[Tensor, Axes]] = {
        "z": (z, rows),
        "timestep": (timestep, {1: "length"} if timestep_per_position else {}),
        "padding": (torch.zeros(z.shape[:-1], dtype=torch.bool), rows),
    }
    exported: dict[str, OnnxGraph] = {}
    if encoded.keys.numel():
        encoder_inputs: dict[str, tuple[Tensor, Axes]] = {
            "tokens": (source.tokens, there),
            "padding": (source.padding, there),
        }
        exported["encode"] = OnnxGraph(_Encode(network), encoder_inputs, ("states", "keys", "values"))
        open_keys = {1: "sentences", 3: "source_length"}
        inputs = canvas | {
            "self_condition": (z.clone(), rows),
            "source_padding": (source.padding, there),
            "keys": (encoded.keys, open_keys),
            "values": (encoded.values, open_keys),
        }
        exported["step"] = OnnxGraph(_SourceStep(network), inputs, ("z0", "hidden"))
    else:
        exported["step"] = OnnxGraph(_CanvasStep(network), canvas, ("z0", "hidden"))
    if type(network).logits is not Denoiser.logits:
        hidden = torch.zeros(sentences, length, encoded.states.shape[-1])
        exported["logits"] = OnnxGraph(
            _Logits(network), {"hidden": (hidden, {0: "rows", 1: "length"})}, ("logits",)
        )
    return exported


def export_onnx(graph: OnnxGraph) -> bytes:
    """The graph as an ONNX file with its weights; the module's int8 layers then call a custom operator."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise Problem(
            "The export needs the packages onnx and onnxscript: pip install 'noise2text[export]'."
        ) from error
    weights = (*graph.module.parameters(), *graph.module.buffers())
    if sum(weight.nbytes for weight in weights) > MAX_WEIGHT_BYTES:
        raise Problem("This model is too large to be exported: an ONNX file holds at most 2 GB of weights.")
    use_int8_custom_op(graph.module)
    with _silence_warnings():
        program = torch.onnx.export(
            graph.module.eval(),
            tuple(example for example, _ in graph.inputs.values()),
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamic_shapes=tuple(axes for _, axes in graph.inputs.values()),
            custom_translation_table=onnx_translations(),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    return _strip_metadata(program.model_proto)


def _strip_metadata(model: Any) -> bytes:
    """The ONNX file without notes on which line of the program each node comes from."""
    for node in (model, model.graph, *model.graph.node, *model.graph.input, *model.graph.output):
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    for value in (*model.graph.value_info, *model.graph.initializer):
        value.ClearField("metadata_props")
    serialized: bytes = model.SerializeToString(deterministic=True)
    return serialized


@contextmanager
def _silence_warnings() -> Iterator[None]:
    """A block in which torch does not warn of optional packages or of axes with the same name."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
