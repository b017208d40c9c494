"""Count the functions and files on Difformer's main paths, and how deep the mathematics lies.

    python benchmarks/call_paths.py [--list | --files | --rooms]

Difformer's tiny preset is run on a CPU in three ways:

- training, from a JSON Lines file of pairs to the first gradient: `noise2text.train` until the optimizer is
  about to take its first step;
- generation, from a sentence to text: `generate` of a loaded model;
- the command `noise2text generate`, from which the depth of generation is counted.

The functions of the package that are called are counted, each once, however often it is called or resumed.
Properties and constructors are functions, those that `dataclass` writes are not. Comprehensions, generator
expressions, lambdas, and the bodies of modules and classes are not counted, and functions whose result the
training before has cached are not called. All modules of the package are imported first. `--rooms` shows how
many functions of each room are called: what reads, checks and writes data and settings is in `data` and
`core`, the papers' method in `nn`, `diffusion`, `generation` and `training`. A depth is the number of the
package's functions on the stack, both ends included: from the command to the denoiser's forward, and from the
training loop to the cross-entropy over the vocabulary. No function is found by its name: the command is what
typer calls, the denoiser is the module that is called most often among those that no other module calls, and
the loop is the innermost function that is on the stack both at the cross-entropy and at the optimizer's step.
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
CROSS_ENTROPIES = {"aten::_log_softmax", "aten::logsumexp"}  # one of these is in every cross-entropy


def find_file(code: CodeType) -> str | None:
    """The file in the package that a function is in; None for anything else."""
    if code.co_name in NO_FUNCTIONS or not code.co_flags & inspect.CO_OPTIMIZED:
        return None
    path = Path(code.co_filename)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else None


def describe(code: CodeType) -> str:
    """File, line and name of a function."""
    return f"{find_file(code)}:{code.co_firstlineno} {code.co_qualname}"


class CallRecorder:
    """Records the package's functions in the order of their first calls."""

    def __init__(self) -> None:
        self.functions: dict[CodeType, None] = {}
        self._known: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code not in self._known:
            self._known.add(code)
            if find_file(code) is not None:
                self.functions[code] = None

    def stop(self) -> None:
        """End the recording."""
        sys.setprofile(None)
        threading.setprofile(None)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within, calls are recorded."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            self.stop()

    def count_by_file(self) -> Counter[str]:
        """How many functions were called in each file."""
        return Counter(str(find_file(code)) for code in self.functions)

    def count_by_room(self) -> Counter[str]:
        """How many functions were called in each folder of the package."""
        return Counter(str(find_file(code)).split("/")[0] for code in self.functions)


def get_stack() -> list[FrameType]:
    """All frames above the caller, the outermost first."""
    frames, frame = [], sys._getframe(1)
    while (above := frame.f_back) is not None:
        frames.append(above)
        frame = above
    return frames[::-1]


def keep_package_frames(frames: Sequence[FrameType]) -> list[FrameType]:
    """The frames of the package's functions."""
    return [frame for frame in frames if find_file(frame.f_code) is not None]


class Reached(Exception):
    """The run has come as far as it should."""


@contextmanager
def until_first_step(act: Callable[[], None]) -> Iterator[None]:
    """Within, a run calls `act` and ends where the optimizer would take its first step."""

    def hook(optimizer: Any, arguments: Any, keywords: Any) -> None:
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


class CrossEntropyFinder(TorchDispatchMode):
    """Keeps the package's frames at the first cross-entropy over the vocabulary.

    Its size tells it from other softmaxes; it is asked for late, because the run learns the vocabulary.
    """

    def __init__(self, vocabulary: Callable[[], int]) -> None:
        super().__init__()
        self.vocabulary, self.frames = vocabulary, list[FrameType]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().partition(".")[0]
        if not self.frames and name in CROSS_ENTROPIES and args[0].shape[-1] == self.vocabulary():
            self.frames = keep_package_frames(get_stack())
        return func(*args, **(kwargs or {}))


class ModuleCalls:
    """Counts the calls of modules that no other module calls, and keeps the frames of their first calls."""

    def __init__(self) -> None:
        self.calls: Counter[nn.Module] = Counter()
        self.frames: dict[nn.Module, list[FrameType]] = {}
        self._open: list[nn.Module] = []

    def enter(self, module: nn.Module, arguments: Any) -> None:
        """Hook before a module's forward."""
        if not self._open:
            self.calls[module] += 1
            self.frames.setdefault(module, get_stack())
        self._open.append(module)

    def leave(self, module: nn.Module, arguments: Any, result: Any) -> None:
        """Hook after a module's forward."""
        self._open.pop()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within, calls are recorded."""
        handles = register_module_forward_pre_hook(self.enter), register_module_forward_hook(self.leave)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def path_to_denoiser(self) -> list[CodeType]:
        """The package's functions from the command to the forward of the module that is called most often."""
        ((module, _),) = self.calls.most_common(1)
        frames = self.frames[module]
        parsing = [i for i, frame in enumerate(frames) if _package(frame) in ("typer", "click")]
        codes = [frame.f_code for frame in keep_package_frames(frames[max(parsing, default=-1) + 1 :])]
        return [*codes, inspect.unwrap(type(module).forward).__code__]


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def import_all() -> None:
    """Import every module of the package, except those that need something that is not installed."""
    for module in pkgutil.walk_packages([str(PACKAGE)], "noise2text."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:
                continue


def write_pairs(path: Path, count: int = 200) -> None:
    """Write a small corpus of dates."""
    days = ((1900 + i, 1 + i % 12, 1 + i % 28) for i in range(count))
    rows = (
        {"src": f"{day} {month_name[month].lower()} {year}", "trg": f"{year}-{month:02}-{day:02}"}
        for year, month, day in days
    )
    path.write_text("".join(json.dumps(each) + "\n" for each in rows), "utf-8")


def train(pairs: Path, out: Path, changes: dict[str, Any] | None = None) -> Any:
    """The model of a run of Difformer's tiny preset."""
    return noise2text.train(
        "difformer", train=str(pairs), valid=str(pairs), out=out, preset="tiny", changes=changes, device="cpu"
    )


def record_training(pairs: Path, out: Path) -> CallRecorder:
    """The functions from the file of pairs to the first gradient."""
    calls = CallRecorder()
    with until_first_step(calls.stop), calls.recording():
        train(pairs, out)
    return calls


def find_loss_path(pairs: Path, out: Path) -> list[CodeType]:
    """The functions from the training loop to the cross-entropy."""
    stepping: list[FrameType] = []
    entropies = CrossEntropyFinder(lambda: len(json.loads(vocabulary.read_text("utf-8"))["model"]["vocab"]))
    vocabulary = out / "data" / "tokenizer.json"
    with until_first_step(lambda: stepping.extend(keep_package_frames(get_stack()))), entropies:
        train(pairs, out)
    if not entropies.frames:
        raise RuntimeError("There was no cross-entropy over the vocabulary before the first step.")
    loop = max(i for i, frame in enumerate(entropies.frames) if frame in stepping)
    return [frame.f_code for frame in entropies.frames[loop:]]


def record_generation(model: Any) -> CallRecorder:
    """The functions from a sentence to its text."""
    calls = CallRecorder()
    with calls.recording():
        model.generate([SENTENCE])
    return calls


def find_denoiser_path(folder: Path, sentences: Path) -> list[CodeType]:
    """The functions from the command to the denoiser's forward."""
    modules = ModuleCalls()
    words = ["noise2text", "generate", str(folder), "--input", str(sentences), "--device", "cpu"]
    quiet = redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO())
    with mock.patch.object(sys, "argv", words), quiet[0], quiet[1], modules.recording():
        try:
            runpy.run_module("noise2text", run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise RuntimeError("The command failed.") from end
    return modules.path_to_denoiser()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--list", action="store_true", help="list all functions, in the order of first calls")
    shown.add_argument("--files", action="store_true", help="list all files with their number of functions")
    shown.add_argument("--rooms", action="store_true", help="list all rooms with their number of functions")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    import_all()
    with TemporaryDirectory() as folder:
        pairs, sentences, run = (Path(folder) / name for name in ("pairs.jsonl", "sentences.txt", "run"))
        write_pairs(pairs)
        sentences.write_text(f"{SENTENCE}\n", "utf-8")
        training = record_training(pairs, Path(folder) / "calls")
        loss = find_loss_path(pairs, Path(folder) / "depth")
        model = train(pairs, run, {"optim.steps": 1})
        generation = record_generation(model)
        network = find_denoiser_path(run, sentences)
    for name, calls in (("training", training), ("generation", generation)):
        by_file = calls.count_by_file()
        print(f"{name}: {len(calls.functions)} functions in {len(by_file)} files")
        for file, count in by_file.most_common() if arguments.files else ():
            print(f"  {count:>3} {file}")
        for room, count in calls.count_by_room().most_common() if arguments.rooms else ():
            print(f"  {count:>3} {room}")
        for code in calls.functions if arguments.list else ():
            print(f"  {describe(code)}")
    for name, codes in (
        ("the command to the denoiser's forward", network),
        ("the training loop to the cross-entropy", loss),
    ):
        print(f"depth from {name}: {len(codes)}")
        for number, code in enumerate(codes, 1):
            print(f"  {number:>2} {describe(code)}")


if __name__ == "__main__":
    main()
