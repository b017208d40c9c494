"""What is installed, which devices there are, how fast the shipped model is, and what is missing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import time
from collections.abc import Iterable, Iterator

import torch

from noise2text.core.version import __version__
from noise2text.models import Model
from noise2text.models.folder import load
from noise2text.models.shipped import list_shipped_models

__all__ = ["examine", "find_missing_extras", "warn_of_load"]

HIDDEN_EXTRAS = ("dev", "docs", "fuzz", "release")  # for those who work on the package
BATCH = 8  # of the second speed check
SENTENCE = "Ich würde gerne wissen, wann der nächste Zug nach Berlin fährt."


Fact = tuple[str, str]
"""What a fact is about, and the fact."""


def examine(*, device: str | None = None, seconds: float = 4.0) -> Iterator[Fact]:
    """The facts of the report, as they are found out; a speed check takes so many seconds, or one call."""
    yield (
        "noise2text",
        f"{__version__}, with Python {platform.python_version()} and torch {torch.__version__}",
    )
    yield "system", f"{platform.system()} {platform.machine()}"
    yield "CPU", f"{os.cpu_count()} cores; torch uses {torch.get_num_threads()}"
    yield from _list_gpus()
    if hasattr(os, "getloadavg"):
        yield from warn_of_load(os.getloadavg()[0], os.cpu_count() or 1)
    for name in list_shipped_models():
        yield _time_model(name, device=device, seconds=seconds)
    missing = find_missing_extras(importlib.metadata.requires("noise2text") or [])
    yield "extras", "optional, and not installed:" if missing else "all are installed"
    for extra, packages in missing.items():
        yield "", f"pip install 'noise2text[{extra}]'  # {', '.join(packages)}"


def _list_gpus() -> Iterator[Fact]:
    if not torch.cuda.is_available():
        yield "GPU", "none that torch can use"
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        yield f"GPU {index}", f"{facts.name}, {facts.total_memory / 2**30:.0f} GiB"


def warn_of_load(load: float, cores: int) -> Iterator[Fact]:
    """A fact if other programs keep more than half of the cores busy: the speed is then not the machine's."""
    if load > cores / 2:
        yield (
            "load",
            f"other programs use the CPU ({load:.1f} on {cores} cores), so the speed below is too low",
        )


def _time_model(name: str, *, device: str | None, seconds: float) -> Fact:
    """The time per sentence of a shipped model, one at a time and in a batch."""
    model = load(name, device=device)
    model.generate([SENTENCE])  # the first call is slower
    alone, together = (_time_sentences(model, count, seconds=seconds) for count in (1, BATCH))
    where = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else "the CPU"
    times = f"{alone:.3f} s per sentence on {where}, {together:.3f} in batches of {BATCH}"
    return "speed", f"{name} takes {times}"


def _time_sentences(model: Model, count: int, *, seconds: float) -> float:
    """The mean time per sentence of as many calls as fit into the time, at least one."""
    started, calls = time.perf_counter(), 0
    while calls == 0 or time.perf_counter() - started < seconds:
        model.generate([SENTENCE] * count)
        calls += 1
    return (time.perf_counter() - started) / calls / count


def find_missing_extras(requirements: Iterable[str]) -> dict[str, list[str]]:
    """The extras of a package of which something is not installed, with what is missing.

    >>> from noise2text.commands.doctor import find_missing_extras
    >>> find_missing_extras(["torch>=2; extra == 'report'", "no-such-package>=1; extra == 'report'"])
    {'report': ['no-such-package']}
    """
    missing: dict[str, list[str]] = {}
    for requirement in requirements:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra == ['\"]([^'\"]+)['\"]", requirement)
        if name is None or extra is None or extra[1] in HIDDEN_EXTRAS:
            continue
        try:
            importlib.metadata.version(name[0])
        except importlib.metadata.PackageNotFoundError:
            missing.setdefault(extra[1], []).append(name[0])
    return missing
