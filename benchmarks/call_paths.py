"""How many functions, in how many files, a reader of Difformer meets, and how deep the mathematics lies.

    python benchmarks/call_paths.py [--list]

Three things are run with Difformer's tiny preset on a CPU, and watched:

- training, from a JSON Lines file of pairs to the first gradient: `noise2text.train`, until the optimiser is
  about to take its first step;
- generation, from a sentence to text: `generate` of a model that is loaded;
- the command `noise2text generate`, from which the depth is counted.

Counted are the package's functions that are called, each once, however often it is called or resumed;
comprehensions, generator expressions, lambdas, and the bodies of modules and classes are no functions here.
The modules of the package are imported before. A depth is the number of the package's functions on the stack,
both ends counted: from the command to the denoiser's forward, and from the training loop to the cross entropy
over the vocabulary. None of these is known by its name: the command is what typer calls, the denoiser is the
module that is called most often of those that no other module calls, and the loop is the innermost function
that waits both for the cross entropy and for the optimiser.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import io
import json
import pkgutil
import runpy
import sys
import threading
from calendar import month_name
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

import noise2text

PACKAGE = Path(noise2text.__file__).resolve().parent
NO_FUNCTIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>"}
SENTENCE = "7 april 1957"
CROSS_ENTROPIES = {"aten::_log_softmax", "aten::logsumexp"}  # what all ways to write it come down to


def place_of(code: CodeType) -> str | None:
    """Where in the package a function is, by its file; none for what is no function of the package."""
    if code.co_name in NO_FUNCTIONS or not code.co_flags & inspect.CO_OPTIMIZED:
        return None
    path = Path(code.co_filename)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else None


def named(code: CodeType) -> str:
    """A function for people."""
    return f"{place_of(code)}:{code.co_firstlineno} {code.co_qualname}"


class Called:
    """The package's functions in the order of their first calls, while it watches."""

    def __init__(self) -> None:
        self.functions: dict[CodeType, None] = {}
        self._known: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code not in self._known:
            self._known.add(code)
            if place_of(code) is not None:
                self.functions[code] = None

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    @contextmanager
    def watching(self) -> Iterator[None]:
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            self.stop()

    def line(self) -> str:
        """The numbers."""
        files = {place_of(code) for code in self.functions}
        return f"{len(self.functions)} functions in {len(files)} files"


def stack() -> list[FrameType]:
    """All frames, the outermost first, but for the one that asks."""
    frames, frame = [], sys._getframe(1)
    while (above := frame.f_back) is not None:
        frames.append(above)
        frame = above
    return frames[::-1]


def ours(frames: Sequence[FrameType]) -> list[FrameType]:
    """Those of the package's functions."""
    return [frame for frame in frames if place_of(frame.f_code) is not None]


class Reached(Exception):
    """The run is where it was wanted."""


@contextmanager
def until_first_step(act: Callable[[], None]) -> Iterator[None]:
    """Within, a run ends where the optimiser would take its first step, after the act."""

    def hook(optimiser: Any, arguments: Any, keywords: Any) -> None:
        act()
        raise Reached

    handle = register_optimizer_step_pre_hook(hook)
    try:
        yield
    except Reached:
        return
    finally:
        handle.remove()
    raise RuntimeError("The run ended without a step.")


class CrossEntropies(TorchDispatchMode):
    """Notes the package's frames at the first cross entropy over the vocabulary.

    How large that is, which tells it from other softmaxes, is asked when one comes: the run learns it.
    """

    def __init__(self, vocabulary: Callable[[], int]) -> None:
        super().__init__()
        self.vocabulary, self.frames = vocabulary, list[FrameType]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().partition(".")[0]
        if not self.frames and name in CROSS_ENTROPIES and args[0].shape[-1] == self.vocabulary():
            self.frames = ours(stack())
        return func(*args, **(kwargs or {}))


class Modules:
    """Counts the calls of modules that no other module calls, and keeps the frames of each one's first."""

    def __init__(self) -> None:
        self.calls: Counter[nn.Module] = Counter()
        self.frames: dict[nn.Module, list[FrameType]] = {}
        self._open: list[nn.Module] = []

    def enter(self, module: nn.Module, arguments: Any) -> None:
        if not self._open:
            self.calls[module] += 1
            self.frames.setdefault(module, stack())
        self._open.append(module)

    def leave(self, module: nn.Module, arguments: Any, result: Any) -> None:
        self._open.pop()

    @contextmanager
    def watching(self) -> Iterator[None]:
        handles = register_module_forward_pre_hook(self.enter), register_module_forward_hook(self.leave)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def deepest(self) -> list[CodeType]:
        """The package's functions from the command to the forward of the module that is called most often."""
        ((module, _),) = self.calls.most_common(1)
        frames = self.frames[module]
        parsing = [i for i, frame in enumerate(frames) if _package(frame) in ("typer", "click")]
        codes = [frame.f_code for frame in ours(frames[max(parsing, default=-1) + 1 :])]
        return [*codes, inspect.unwrap(type(module).forward).__code__]


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def import_all() -> None:
    """Import every module that there is; what needs something that is not installed is left out."""
    for module in pkgutil.walk_packages([str(PACKAGE)], "noise2text."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:
                continue


def write_pairs(path: Path, count: int = 200) -> None:
    """A small corpus of dates."""
    days = ((1900 + i, 1 + i % 12, 1 + i % 28) for i in range(count))
    rows = (
        {"src": f"{day} {month_name[month].lower()} {year}", "trg": f"{year}-{month:02}-{day:02}"}
        for year, month, day in days
    )
    path.write_text("".join(json.dumps(each) + "\n" for each in rows), "utf-8")


def train(pairs: Path, out: Path, **changes: Any) -> Any:
    """A run of Difformer's tiny preset."""
    return noise2text.train(
        "difformer", train=str(pairs), valid=str(pairs), out=out, preset="tiny", changes=changes, device="cpu"
    )


def training_calls(pairs: Path, out: Path) -> Called:
    """What is called from the file to the first gradient."""
    called = Called()
    with until_first_step(called.stop), called.watching():
        train(pairs, out)
    return called


def training_depth(pairs: Path, out: Path) -> list[CodeType]:
    """The functions from the training loop to the cross entropy."""
    stepping: list[FrameType] = []
    entropies = CrossEntropies(lambda: len(json.loads(vocabulary.read_text("utf-8"))["model"]["vocab"]))
    vocabulary = out / "data" / "tokenizer.json"
    with until_first_step(lambda: stepping.extend(ours(stack()))), entropies:
        train(pairs, out)
    if not entropies.frames:
        raise RuntimeError("There was no cross entropy over the vocabulary before the first step.")
    loop = max(i for i, frame in enumerate(entropies.frames) if frame in stepping)
    return [frame.f_code for frame in entropies.frames[loop:]]


def generation_calls(model: Any) -> Called:
    """What is called from a sentence to its text."""
    called = Called()
    with called.watching():
        model.generate([SENTENCE])
    return called


def generation_depth(folder: Path, sentences: Path) -> list[CodeType]:
    """The functions from the command to the denoiser's forward."""
    modules = Modules()
    words = ["noise2text", "generate", str(folder), "--input", str(sentences), "--device", "cpu"]
    quiet = redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO())
    with mock.patch.object(sys, "argv", words), quiet[0], quiet[1], modules.watching():
        try:
            runpy.run_module("noise2text", run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise RuntimeError("The command failed.") from end
    return modules.deepest()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="all functions, in the order of first calls")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    import_all()
    with TemporaryDirectory() as folder:
        pairs, sentences, run = (Path(folder) / name for name in ("pairs.jsonl", "sentences.txt", "run"))
        write_pairs(pairs)
        sentences.write_text(f"{SENTENCE}\n", "utf-8")
        training = training_calls(pairs, Path(folder) / "calls")
        loss = training_depth(pairs, Path(folder) / "depth")
        model = train(pairs, run, steps=1)
        generation = generation_calls(model)
        network = generation_depth(run, sentences)
    for name, called in (("training", training), ("generation", generation)):
        print(f"{name}: {called.line()}")
        for code in called.functions if arguments.list else ():
            print(f"  {named(code)}")
    for name, codes in (
        ("the command to the denoiser's forward", network),
        ("the training loop to the cross entropy", loss),
    ):
        print(f"depth from {name}: {len(codes)}")
        for number, code in enumerate(codes, 1):
            print(f"  {number:>2} {named(code)}")


if __name__ == "__main__":
    main()
