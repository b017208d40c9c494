"""A denoiser whose network onnxruntime runs, from the graphs of `onnx_export.py`.

Sampler, solvers, guidance and selection see no difference. Torch's tensors and onnxruntime's arrays share
their memory, so a step copies nothing. Embedding and rounding stay in torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.data.layouts.base import Source
from noise2text.nn.denoiser import Constraint, Denoiser, EncoderOutput, Estimate, NoiseLevel
from noise2text.nn.embeddings import TokenEmbedding

__all__ = ["ENGINE", "OnnxDenoiser", "OnnxRuntimeConfig", "OnnxSession", "hash_graph"]

ENGINE = "onnxruntime"
EXTERNAL_DATA_KEY = (
    b"location"  # every tensor of an ONNX graph whose data are in another file names it by this
)


@dataclass(frozen=True)
class OnnxRuntimeConfig:
    """The engine of an exported model, as its configuration file describes it."""

    precision: str  # float32 or int8
    parameters: int  # number of weights of the whole model, most of which are in the graphs
    graphs: Mapping[str, str]  # the fingerprint of each graph's file, by its name
    name: str = ENGINE

    @classmethod
    def of(cls, value: Any, path: Path) -> OnnxRuntimeConfig:
        """The engine that a configuration file describes."""
        if not isinstance(value, dict) or value.get("name") != ENGINE or set(value) != set(_FIELDS):
            raise Problem(f"{path} names an engine that is not known here; export the model again.")
        graphs = value["graphs"]
        if not isinstance(graphs, dict) or "step" not in graphs or not graphs.keys() <= set(_GRAPHS):
            raise Problem(f"{path} does not name the graphs of a model; export the model again.")
        if not isinstance(value["precision"], str) or type(value["parameters"]) is not int:
            raise Problem(f"{path} names an engine that is not known here; export the model again.")
        return cls(**value)


_FIELDS = ("precision", "parameters", "graphs", "name")
_GRAPHS = ("encode", "step", "logits")


class OnnxSession:
    """A graph that onnxruntime runs, as a function of tensors by name."""

    def __init__(self, graph: bytes) -> None:
        library = _onnxruntime()
        options = library.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        # Threads wait for each other at every node, and sleeping would cost more than most nodes take. But
        # between two steps torch computes, and threads that kept spinning would slow it down.
        options.add_session_config_entry("session.intra_op.allow_spinning", "1")
        options.add_session_config_entry("session.force_spinning_stop", "1")
        options.log_severity_level = 3
        self.session = library.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self.inputs = {each.name: each.shape for each in self.session.get_inputs()}

    def __call__(self, given: Mapping[str, Tensor]) -> list[Tensor]:
        """The graph's outputs; tensors that are not among its inputs are ignored."""
        feed = {name: given[name].detach().contiguous().numpy() for name in self.inputs}
        return [torch.from_numpy(array) for array in self.session.run(None, feed)]


class OnnxDenoiser(Denoiser):
    """A denoiser that onnxruntime runs, for inference on the CPU only."""

    needs_one_timestep = True  # the graph's input has one row

    def __init__(self, embedding: TokenEmbedding, sessions: Mapping[str, OnnxSession]) -> None:
        """Sessions by name: step, and encode and logits if the network has them."""
        super().__init__()
        self.embedding, self.sessions = embedding, dict(sessions)

    @classmethod
    def open(cls, embedding: TokenEmbedding, folder: Path, engine: OnnxRuntimeConfig) -> OnnxDenoiser:
        """The denoiser of an exported folder, whose files must be those that were exported."""
        files = {name: (folder / f"{name}.onnx", expected) for name, expected in engine.graphs.items()}
        return cls(
            embedding,
            {name: OnnxSession(_read_checked(path, expected)) for name, (path, expected) in files.items()},
        )

    def encode(self, source: Source) -> EncoderOutput:
        if "encode" not in self.sessions:
            nothing = self.embedding.weight.new_empty(len(source.tokens), 0)
            return EncoderOutput(nothing, source.padding, nothing, nothing)
        given = {"tokens": source.tokens, "padding": source.padding}
        states, keys, values = self.sessions["encode"](given)
        return EncoderOutput(states, source.padding, keys, values)

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        step, z = self.sessions["step"], constraint.apply(z)
        rows = (len(encoded.padding), -1)  # sentences and their candidates
        before = torch.zeros_like(z) if self_condition is None else self_condition
        same_timestep = step.inputs["timestep"][1] == 1
        given = {
            "z": z.unflatten(0, rows),
            "self_condition": before.unflatten(0, rows),
            "timestep": level.timestep.float().expand(1, -1 if same_timestep else z.shape[1]),
            "padding": constraint.padding.unflatten(0, rows),
            "source_padding": encoded.padding,
            "keys": encoded.keys,
            "values": encoded.values,
        }
        return Estimate(*step(given))

    def logits(self, estimate: Estimate) -> Tensor:
        if "logits" not in self.sessions:
            return super().logits(estimate)
        (logits,) = self.sessions["logits"]({"hidden": estimate.hidden})
        return logits


def hash_graph(graph: bytes) -> str:
    """The SHA-256 fingerprint of a graph's file."""
    return hashlib.sha256(graph).hexdigest()


def _read_checked(path: Path, expected: str) -> bytes:
    """The bytes of a graph's file, if they have the expected fingerprint."""
    try:
        graph = path.read_bytes()
    except OSError as error:
        raise Problem(f"{path} cannot be read: the folder is not a complete exported model.") from error
    if hash_graph(graph) != expected:
        raise Problem(f"{path} is not the file that was exported; copy it again, or export the model again.")
    if EXTERNAL_DATA_KEY in graph:
        raise Problem(f"{path} keeps weights in another file, which is not read; export the model again.")
    return graph


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise Problem(
            "An exported model needs the package onnxruntime: pip install 'noise2text[export]'."
        ) from error
    return onnxruntime
