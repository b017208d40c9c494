"""Generation by CUDA graphs: a step is captured once for each set of shapes, then replayed at every step.

A step is about a hundred small kernels, and launching one costs more than running it. A step needs only its
number: it finds its coefficients, its noise and its canvas on the device. Batches and lengths are rounded
up to few values (`round_up_batch`, `round_up_length`), so that few graphs serve all texts.

Where CUDA graphs are switched on:

    generation   `Model.executor` (models/base.py) passes a `CudaGraphExecutor`, which has the interface of
                 `generation.executor.Executor`, to every decoder on a GPU
    training     `TrainingRun._build_pass` (commands/training_run.py) passes a `CudaGraphTrainingPass`
                 (cuda_graph_training.py) to the training loop, by the setting `acceleration`
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from noise2text.acceleration.graph_keys import (
    SourceEncoder,
    denoiser_key,
    key_of,
    schedule_key,
    time_embedder_version,
)
from noise2text.acceleration.tensor_trees import clone_tensors, copy_tensors, shapes_of
from noise2text.core.random import gaussian_noise
from noise2text.data.layouts.base import Source
from noise2text.diffusion.sampler import (
    OnStep,
    ReverseProcess,
    SampledStep,
    compute_step_table,
    finish_step,
    sample,
    step,
)
from noise2text.diffusion.solvers import StepTable
from noise2text.nn.denoiser import Constraint, EncoderOutput, Estimate

__all__ = ["CudaGraph", "CudaGraphExecutor", "round_up_batch", "round_up_length"]

MAX_GRAPHS = 96  # graphs, and step tables; beyond that the least recently used is dropped
STEPS_PER_GRAPH = 5  # a graph of several steps is faster: between two graphs a GPU is idle for a moment
NOISE_STEPS = 4 * STEPS_PER_GRAPH  # steps whose noise is drawn at once, if that fits MAX_NOISE_NUMBERS
MAX_NOISE_NUMBERS = 1 << 26  # random numbers that are drawn at once
MAX_STEPS = 2048  # steps that a captured table has room for, shared by its paths; more get an own graph
MANY_ROWS = 64  # rows from which attention uses another kernel
WARMUP_RUNS = 2  # runs before capture, in which libraries initialise themselves

T = TypeVar("T")


def round_up_batch(sentences: int) -> int:
    """The number of sentences, rounded up to a power of two."""
    return 1 << (sentences - 1).bit_length()


def round_up_length(length: int, longest: int) -> int:
    """The length, rounded up to a multiple of 4, or of an eighth of the power of two above it."""
    step = max(4, (1 << (length - 1).bit_length()) // 8)
    return max(length, min(longest, -(-length // step) * step))


class CudaGraph(Generic[T]):
    """A captured function of tensors; its inputs and its output stay where they are in memory."""

    def __init__(self, function: Callable[[], T], *, pool: Any) -> None:
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            for _ in range(WARMUP_RUNS):
                function()
        torch.cuda.current_stream().wait_stream(side_stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.output = function()

    def __call__(self) -> T:
        """The output for the present contents of the inputs; the next call overwrites it."""
        self.graph.replay()
        return self.output


class _CudaGraphFunction(Generic[T]):
    """A captured function of a tuple or dataclass of tensors."""

    def __init__(self, function: Callable[[Any], T], inputs: Any, pool: Any) -> None:
        self.inputs = clone_tensors(inputs)
        self.graph = CudaGraph(lambda: function(self.inputs), pool=pool)

    def __call__(self, inputs: Any) -> T:
        copy_tensors(self.inputs, inputs)
        result: T = clone_tensors(self.graph())  # another call may come before this output is used
        return result


class _CudaGraphSampler:
    """A captured sampling step and all that it reads; the noise of several steps is drawn at once."""

    def __init__(self, process: ReverseProcess, step_table: StepTable, pool: Any) -> None:
        self.denoiser = process.denoiser
        self.inputs = self.encoded, self.constraint, self.noise_keys = clone_tensors(_tensor_inputs(process))
        steps, paths = _table_room(step_table)
        self.step_table = replace(
            StepTable(*(part.new_zeros(steps, paths, *part.shape[2:]) for part in step_table.tensors)),
            owners=None if step_table.owners is None else step_table.owners.clone(),
        )
        self.loaded_table = self.step_table  # the table that was copied there last
        self.step_index = torch.zeros(1, dtype=torch.long, device=self.noise_keys.device)
        self.z, self.z0, self.previous = (
            torch.zeros_like(self.constraint.embeddings, dtype=torch.float) for _ in range(3)
        )
        self.noise_steps = max(1, min(NOISE_STEPS, MAX_NOISE_NUMBERS // self.constraint.embeddings.numel()))
        self.steps_taken = 0
        self.draw = CudaGraph(self._draw, pool=pool)
        self.step, self.multi_step = (
            CudaGraph(self._run_step, pool=pool),
            CudaGraph(self._run_steps, pool=pool),
        )

    def _draw(self) -> Tensor:
        """The noise of the next steps."""
        numbers = self.step_index + torch.arange(self.noise_steps, device=self.step_index.device)
        return gaussian_noise(self.noise_keys, numbers[:, None], *self.constraint.embeddings.shape[1:])

    def _run_step(self) -> Tensor:
        """One step as in `sample`, written over its inputs; returns the network's last hidden states."""
        noise = self.draw.output.index_select(0, self.step_index % self.noise_steps)[0]
        coefficients = self.step_table.row(self.step_index)
        z = self.constraint.apply(step(self.z, self.z0, self.previous, coefficients, noise).z)
        with sdpa_kernel(_attention_backends(len(self.noise_keys))):
            estimate: Estimate = self.denoiser(z, coefficients.level, self.encoded, self.constraint, self.z0)
        self.previous.copy_(self.z0)  # first: it is the estimate that is now overwritten
        self.z0.copy_(self.constraint.apply(estimate.z0))
        self.z.copy_(z)
        self.step_index.add_(1)
        return estimate.hidden

    def _run_steps(self) -> Tensor:
        """Several steps."""
        return [self._run_step() for _ in range(STEPS_PER_GRAPH)][-1]

    def reset(self, process: ReverseProcess, step_table: StepTable) -> None:
        """Put other sentences, and the state before the first step, in the place of the last ones."""
        copy_tensors(self.inputs, _tensor_inputs(process))
        if step_table is not self.loaded_table:
            for mine, theirs in zip(self.step_table.tensors, step_table.tensors, strict=True):
                mine[: len(theirs), : theirs.shape[1]].copy_(theirs)
            if self.step_table.owners is not None and step_table.owners is not None:
                self.step_table.owners.copy_(step_table.owners)
        torch._foreach_zero_([self.step_index, self.z, self.z0, self.previous])
        self.loaded_table, self.steps_taken = step_table, 0

    def advance(self, count: int) -> Estimate:
        """The estimate after `count` more steps, to `self.z`; later steps overwrite both."""
        end = self.steps_taken + count
        while self.steps_taken < end:
            if self.steps_taken % self.noise_steps == 0:
                self.draw()
            drawn = self.noise_steps - self.steps_taken % self.noise_steps
            takes_several = min(drawn, end - self.steps_taken) >= STEPS_PER_GRAPH
            hidden = self.multi_step() if takes_several else self.step()
            self.steps_taken += STEPS_PER_GRAPH if takes_several else 1
        return Estimate(self.z0, hidden)


def _table_room(step_table: StepTable) -> tuple[int, int]:
    """The steps and the paths that a captured step table has room for, so that few graphs serve all."""
    paths = round_up_batch(step_table.table.shape[1])
    warmup_steps = WARMUP_RUNS * (1 + STEPS_PER_GRAPH)  # before capture, by graphs of one step and of several
    return max(MAX_STEPS // paths, len(step_table), warmup_steps), paths


def _tensor_inputs(process: ReverseProcess) -> tuple[EncoderOutput, Constraint, Tensor]:
    """The tensors of a process that its steps read, which are other ones for each batch."""
    return process.encoded, process.constraint, process.noise_keys


class _CudaGraphDecoding:
    """A state of autoregressive decoding; its step is captured once for each length of its cache."""

    def __init__(self, state: Any, pool: Any) -> None:
        self.state, self.pool, self.eager_advance = state, pool, state.advance
        self.graphs: dict[int, CudaGraph[None]] = {}
        state.advance = self.advance

    def restart(self, new_state: Any) -> None:
        """Put other sentences, and a search that has not begun, in the place of the last ones."""
        copy_tensors(self.state.encoded, new_state.encoded)
        for mine, theirs in zip(_mutable_tensors(self.state), _mutable_tensors(new_state), strict=True):
            mine.copy_(theirs)

    def advance(self, *, cache_length: int) -> None:
        """One token more for each hypothesis."""
        if cache_length not in self.graphs:
            now = [tensor.clone() for tensor in _mutable_tensors(self.state)]
            self.state.position.zero_()  # capture runs the step, so there must be room for it
            self.state.search.rewind()
            self.graphs[cache_length] = CudaGraph(
                partial(self.eager_advance, cache_length=cache_length), pool=self.pool
            )
            for mine, kept in zip(_mutable_tensors(self.state), now, strict=True):
                mine.copy_(kept)
        self.graphs[cache_length]()


def _mutable_tensors(state: Any) -> Iterator[Tensor]:
    """All tensors that a step of autoregressive decoding changes."""
    yield from (state.tokens, state.position)
    yield from _collect_tensors(state.cache)
    yield from _collect_tensors(state.search)


def _collect_tensors(part: Any) -> Iterator[Tensor]:
    """The tensors of an object and of what it is made of, in a fixed order."""
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, list | tuple):
        for each in part:
            yield from _collect_tensors(each)
    elif hasattr(part, "__dict__") and not isinstance(part, type):
        for name in sorted(vars(part)):
            yield from _collect_tensors(vars(part)[name])


class CudaGraphExecutor:
    """An `Executor` that captures and replays CUDA graphs; it caches them by network and shapes."""

    needs_fixed_shapes = True

    def __init__(self) -> None:
        self.graphs: OrderedDict[Hashable, Any] = OrderedDict()
        self.step_tables: OrderedDict[Hashable, StepTable] = OrderedDict()
        self.pools: dict[str, Any] = {}  # graphs of one kind share memory: they never run at the same time

    def encode(self, denoiser: SourceEncoder, source: Source) -> EncoderOutput:
        """The encoded sources; captured if the network has an encoder."""
        cache_key = ("encode", denoiser_key(denoiser))
        if (*cache_key, *shapes_of(source)) not in self.graphs:
            encoded = denoiser.encode(source)
            if not encoded.keys.numel():  # the source is on the canvas: there is nothing to capture
                return encoded
        return self.run(cache_key, denoiser.encode, source)

    def run(self, cache_key: tuple[Hashable, ...], function: Callable[[Any], T], inputs: Any) -> T:
        """What the function returns for a tuple or dataclass of tensors; the key identifies the function."""
        captured: _CudaGraphFunction[T] = self.get_or_capture(
            (*map(key_of, cache_key), *shapes_of(inputs)),
            lambda pool: _CudaGraphFunction(function, inputs, pool),
        )
        return captured(inputs)

    def prepare_decoding_state(
        self, cache_key: tuple[Hashable, ...], make: Callable[[EncoderOutput], Any], encoded: EncoderOutput
    ) -> Any:
        """The state of autoregressive decoding that `make` returns; its step is captured."""
        captured: _CudaGraphDecoding = self.get_or_capture(
            (*map(key_of, cache_key), *shapes_of(encoded)),
            lambda pool: _CudaGraphDecoding(make(clone_tensors(encoded)), pool),
        )
        captured.restart(make(encoded))
        return captured.state

    def sample(self, process: ReverseProcess, on_step: OnStep | None = None) -> Estimate:
        """What `diffusion.sampler.sample` returns, by replayed steps; with a guide, steps run eagerly."""
        if process.guide is not None:
            return sample(process, on_step)
        table = process.build_step_table(self.look_up_step_table)
        sizes = (*shapes_of(_tensor_inputs(process)), *_table_room(table), table.table.shape[2:])
        sampler: _CudaGraphSampler = self.get_or_capture(
            ("sample", denoiser_key(process.denoiser), *sizes),
            lambda pool: _CudaGraphSampler(process, table, pool),
        )
        sampler.reset(process, table)
        if on_step is None and process.stopping is None:
            return sampler.advance(len(table))
        for time in process.times.tolist():
            sampled = SampledStep(time, z=sampler.z, estimate=sampler.advance(1))
            estimate, is_over = finish_step(process, sampled, on_step)
            if is_over:
                break
        return estimate

    def look_up_step_table(self, process: ReverseProcess) -> StepTable:
        """The step table, computed once per denoiser, schedule, times, solver and length."""
        cache_key = (
            process.solver,
            denoiser_key(process.denoiser),
            time_embedder_version(process.denoiser),
            tuple(process.times.tolist()),
            process.constraint.embeddings.shape[1],
            *schedule_key(process.schedule),
        )
        if cache_key not in self.step_tables:
            self.step_tables[cache_key] = compute_step_table(process)
        return _touch_and_evict(self.step_tables, cache_key)

    def padded_shape(self, rows: int, length: int, max_length: int) -> tuple[int, int]:
        """The rows and the length that a batch is padded to: rounded up, so that few graphs serve all."""
        return round_up_batch(rows), round_up_length(length, max_length)

    def get_or_capture(self, cache_key: tuple[Hashable, ...], make: Callable[[Any], Any]) -> Any:
        """What was captured under this key, or is captured now; keys of one kind begin alike."""
        if cache_key not in self.graphs:
            pool = self.pools.setdefault(str(cache_key[0]), torch.cuda.graph_pool_handle())
            self.graphs[cache_key] = make(pool)
        return _touch_and_evict(self.graphs, cache_key)


def _touch_and_evict(store: OrderedDict[Hashable, T], cache_key: Hashable) -> T:
    """What is stored under a key; the least recently used entries are dropped."""
    store.move_to_end(cache_key)
    while len(store) > MAX_GRAPHS:
        store.popitem(last=False)
    return store[cache_key]


def _attention_backends(rows: int) -> list[SDPBackend]:
    """The attention kernels to choose from: for many short rows one is twice as fast as the default."""
    others = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    return others if rows >= MANY_ROWS else [SDPBackend.CUDNN_ATTENTION, *others]
