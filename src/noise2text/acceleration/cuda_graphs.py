"""The denoising step as a CUDA graph: recorded once for each set of shapes, replayed for any number of steps.

A step is about a hundred small kernels, and launching one costs more than running it. Since a step needs
only its number, and finds its factors, its noise and its canvas on the device (`diffusion/walk.py`), the very
function that runs elsewhere is recorded here; nothing is written twice. Batches and lengths are rounded up to
few values (`batch_size`, `width`), so that few graphs serve all texts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import fields
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from noise2text.core.random import gaussian
from noise2text.data.layouts.canvas import Source
from noise2text.diffusion.sampler import Lay, Path, Spot, Stepper, go, start
from noise2text.nn.denoiser import Denoiser, Estimate, Held, Memory
from noise2text.nn.embeddings import Space

__all__ = ["Captures", "Graph", "batch_size", "copied", "fill", "shapes", "which", "who", "width"]

KEPT = 96  # graphs, and paths, after which the one not used for longest is forgotten
LEAP = 5  # steps that one graph takes, where so many are asked for: between two graphs a GPU rests a while
AHEAD = 4 * LEAP  # steps whose noise is drawn at once,
NOISE = 1 << 26  # unless these are more numbers than this
LONGEST = 2048  # steps that a recorded walk has room for, unless more are asked for
MANY = 64  # rows from which attention takes another kernel
WARM = 2  # runs before recording, in which libraries set themselves up

T = TypeVar("T")


def batch_size(sentences: int) -> int:
    """The number of sentences, rounded up to a power of two."""
    return 1 << (sentences - 1).bit_length()


def width(length: int, longest: int) -> int:
    """The length, rounded up to a multiple of 4, or of an eighth of the power of two above it."""
    step = max(4, (1 << (length - 1).bit_length()) // 8)
    return max(length, min(longest, -(-length // step) * step))


class Reader(Protocol):
    """What reads a source before it writes: a denoiser, or a writer."""

    space: Space

    def read(self, source: Source) -> Memory:
        """What is kept of the sources."""


class Graph(Generic[T]):
    """A function of tensors, recorded; its inputs and its output keep their places in memory."""

    def __init__(self, function: Callable[[], T], *, pool: Any) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM):
                function()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.output = function()

    def __call__(self) -> T:
        """The output for what the inputs hold now; the next call overwrites it."""
        self.graph.replay()
        return self.output


class _Recorded(Generic[T]):
    """A function of a dataclass of tensors, recorded."""

    def __init__(self, function: Callable[[Any], T], given: Any, pool: Any) -> None:
        self.given = copied(given)
        self.graph = Graph(lambda: function(self.given), pool=pool)

    def __call__(self, given: Any) -> T:
        fill(self.given, given)
        result: T = copied(self.graph())  # others may be asked before this answer is used
        return result


class _Walk:
    """A step down, recorded, with all that it looks at; the noise of several steps is drawn at once."""

    def __init__(
        self, denoiser: Denoiser, memory: Memory, held: Held, keys: Tensor, path: Path, pool: Any
    ) -> None:
        self.denoiser, self.memory, self.held, self.keys = (
            denoiser,
            copied(memory),
            copied(held),
            keys.clone(),
        )
        room = max(LONGEST, len(path))
        self.path = Path(*(part.new_zeros(room, *part.shape[1:]) for part in path.parts))
        self.last = self.path  # what was put into it
        self.number = torch.zeros(1, dtype=torch.long, device=keys.device)
        self.spot = start(held)
        self.ahead = max(1, min(AHEAD, NOISE // held.given.numel()))
        self.taken = 0
        self.draw = Graph(self._draw, pool=pool)
        self.step, self.leap = Graph(self._go, pool=pool), Graph(self._leap, pool=pool)

    def _draw(self) -> Tensor:
        """The noise of the next steps."""
        numbers = self.number + torch.arange(self.ahead, device=self.number.device)
        return gaussian(self.keys, numbers[:, None], *self.held.given.shape[1:])

    def _go(self) -> Tensor:
        """One step, whose end is put where it began; returns the network's last states."""
        noise = self.draw.output.index_select(0, self.number % self.ahead)[0]
        row = self.path.at(self.number)
        with sdpa_kernel(_attention(len(self.keys))):
            spot = go(self.denoiser, self.memory, self.held, noise, row, self.spot)
        self.spot.before.copy_(spot.before)  # first: it is the estimate that is now overwritten
        self.spot.estimate.mean.copy_(spot.estimate.mean)
        self.spot.z.copy_(spot.z)
        self.number.add_(1)
        return spot.estimate.hidden

    def _leap(self) -> Tensor:
        """Several steps."""
        return [self._go() for _ in range(LEAP)][-1]

    def begin(self, memory: Memory, held: Held, keys: Tensor, path: Path) -> Stepper:
        """Put a new walk in the place of the last one."""
        fill((self.memory, self.held, self.keys), (memory, held, keys))
        if path is not self.last:
            for mine, theirs in zip(self.path.parts, path.parts, strict=True):
                mine[: len(path)].copy_(theirs)
        torch._foreach_zero_([self.number, self.spot.z, self.spot.estimate.mean, self.spot.before])
        self.last, self.taken = path, 0
        return self._step

    def _step(self, count: int) -> Spot:
        end = self.taken + count
        while self.taken < end:
            if self.taken % self.ahead == 0:
                self.draw()
            drawn = self.ahead - self.taken % self.ahead
            leaps = min(drawn, end - self.taken) >= LEAP
            hidden = self.leap() if leaps else self.step()
            self.taken += LEAP if leaps else 1
        return Spot(self.spot.z, Estimate(self.spot.estimate.mean, hidden), self.spot.before)


class Captures:
    """The recorded graphs of a system, by the denoiser and the shapes that they are for."""

    def __init__(self) -> None:
        self.graphs: OrderedDict[Hashable, Any] = OrderedDict()
        self.paths: OrderedDict[Hashable, Path] = OrderedDict()
        self.pools: dict[str, Any] = {}  # graphs of one kind never run at the same time: they share memory

    def read(self, denoiser: Reader, source: Source) -> Memory:
        """What the denoiser, or a writer, keeps of the sources."""
        name = ("read", who(denoiser))
        if (*name, *shapes(source)) not in self.graphs:
            memory = denoiser.read(source)
            if not memory.keys.numel():  # the source is on the canvas: there is nothing to record
                return memory
        return self.call(name, denoiser.read, source)

    def call(self, name: tuple[Hashable, ...], function: Callable[[Any], T], given: Any) -> T:
        """A function's answer to a dataclass of tensors; the name tells what it does with them."""
        recorded: _Recorded[T] = self.find(
            (*name, *shapes(given)), lambda pool: _Recorded(function, given, pool)
        )
        return recorded(given)

    def lay(self, lay: Lay, *what: Hashable) -> Lay:
        """The same paths, each made once for all walks that go down the same schedule in the same way."""

        def laid(
            denoiser: Denoiser, schedule: nn.Module, times: Tensor, length: int, device: torch.device
        ) -> Path:
            name = (*what, who(denoiser), _age(denoiser), tuple(times.tolist()), length, *which(schedule))
            if name not in self.paths:
                self.paths[name] = lay(denoiser, schedule, times, length, device)
            return _kept(self.paths, name)

        return laid

    def prepare(self, denoiser: Denoiser, memory: Memory, held: Held, keys: Tensor, path: Path) -> Stepper:
        """The steps of a walk, in the place of `walk.eager`."""
        sizes = (*shapes(memory), *shapes(held), path.table.shape[1:], max(LONGEST, len(path)))
        name = ("walk", who(denoiser), *sizes)
        walk: _Walk = self.find(name, lambda pool: _Walk(denoiser, memory, held, keys, path, pool))
        return walk.begin(memory, held, keys, path)

    def find(self, name: tuple[Hashable, ...], make: Callable[[Any], Any]) -> Any:
        """What was recorded under this name, or is made now; names of one kind begin alike."""
        if name not in self.graphs:
            pool = self.pools.setdefault(str(name[0]), torch.cuda.graph_pool_handle())
            self.graphs[name] = make(pool)
        return _kept(self.graphs, name)


def _kept(store: OrderedDict[Hashable, T], name: Hashable) -> T:
    """What is stored under a name; only the last to be asked for are kept."""
    store.move_to_end(name)
    while len(store) > KEPT:
        store.popitem(last=False)
    return store[name]


def _attention(rows: int) -> list[SDPBackend]:
    """The kernels that attention may use: for many short rows one is twice as fast as the usual choice."""
    others = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    return others if rows >= MANY else [SDPBackend.CUDNN_ATTENTION, *others]


def who(denoiser: Reader) -> Hashable:
    """Who reads: the wrappers of a denoiser with their numbers, and the weights at the bottom of them."""
    inner = getattr(denoiser, "denoiser", None)
    if isinstance(inner, Denoiser):
        plain = (item for item in vars(denoiser).items() if isinstance(item[1], int | float | str))
        return type(denoiser), tuple(plain), who(inner)
    return id(denoiser), denoiser.space.table.data_ptr()


def _age(denoiser: Denoiser) -> Hashable:
    """How often the weights that make a path's ticks were changed: a graph sees it, a kept path does not."""
    timer = denoiser.timer()
    return () if timer is None else tuple(map(_version, timer.parameters()))


def _version(tensor: Tensor) -> Hashable:
    """How often a tensor was changed in place; those of inference mode do not count, and say so."""
    return object() if tensor.is_inference() else tensor._version


def which(schedule: nn.Module) -> Sequence[Hashable]:
    """Which schedule this is: its numbers, where its tables are and how often these were changed."""
    own = chain(schedule.parameters(recurse=False), schedule.buffers(recurse=False))
    tables = [(t.data_ptr(), _version(t)) for t in own]
    plain = (item for item in vars(schedule).items() if isinstance(item[1], int | float | str))
    return [
        type(schedule).__qualname__,
        *plain,
        *tables,
        *chain.from_iterable(map(which, schedule.children())),
    ]


def _parts(whole: Any) -> Sequence[Any]:
    """The parts of a tuple or a dataclass, in their order."""
    return whole if isinstance(whole, tuple) else [getattr(whole, each.name) for each in fields(whole)]


def _tensors(parts: Any) -> Iterator[Tensor]:
    """The tensors of a tuple or a dataclass, and of those within it."""
    for part in _parts(parts):
        yield from [part] if isinstance(part, Tensor) else _tensors(part)


def shapes(parts: Any) -> Sequence[Hashable]:
    """The shapes and types of a tuple's or a dataclass's tensors."""
    return [(tensor.shape, tensor.dtype) for tensor in _tensors(parts)]


def copied(parts: Any) -> Any:
    """The same tuple or dataclass with tensors of its own."""
    own = [part.clone() if isinstance(part, Tensor) else copied(part) for part in _parts(parts)]
    return tuple(own) if isinstance(parts, tuple) else type(parts)(*own)


def fill(parts: Any, others: Any) -> None:
    """Put the tensors of another tuple or dataclass into the places of this one's."""
    torch._foreach_copy_(list(_tensors(parts)), list(_tensors(others)))
