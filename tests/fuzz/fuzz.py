"""Attack every parser with mutated input, and print the figures: cases, problems, faults.

    python tests/fuzz/fuzz.py --cases 1000000           # mutations, about as many for each target
    python tests/fuzz/fuzz.py --cases 0 --guided 600    # 600 seconds, guided by coverage (atheris)

The law: an input works, or raises a Problem with a readable message, within 20 seconds and 2 GiB of memory.
Anything else is a fault; its input is written to build/fuzz/, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import importlib.util
import random
import re
import resource
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from noise2text.core.errors import Problem
from tests.fuzz.targets import TARGETS, Target, remove_files, require_readable

__all__ = ["Figures", "attack", "mutate", "run", "share_cases"]

TIME_LIMIT = 20  # seconds of the processor per case
MEMORY_LIMIT = 2 << 30  # bytes of addresses above those at the start
FAULTS = Path("build/fuzz")

TOKENS = [
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"'",
        b",",
        b":",
        b"\n",
        b"\t",
        b"\\",
        b"-",
        b".",
        b"e",
        b"&a ",
        b"*a ",
        b"!!",
    ),
    *(
        b"null",
        b"true",
        b"NaN",
        b"Infinity",
        b"1e400",
        b"-1",
        b"0",
        b"9" * 30,
        b"9" * 5000,
        b"0x" + b"f" * 5000,
    ),
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", "ß".encode(), "\u2028".encode(), b"\r"),
    *(b"[" * 2000, b'{"a":' * 2000, b"___{", b"<<: ", b"2024-13-45", b"\x7f" * 8, b"\x80\x00\x00\x00"),
    *(b"../", b"org/name", b"attn_implementation", b'"x"', b"[[]]", b"{}", b"4611686018427387904"),
]


@dataclass
class Figures:
    """What an attack has seen; a fault is described by its target, its input and its traceback."""

    cases: collections.Counter[str] = field(default_factory=collections.Counter)
    problems: collections.Counter[str] = field(default_factory=collections.Counter)
    guided: collections.Counter[str] = field(default_factory=collections.Counter)
    faults: list[tuple[str, bytes, str]] = field(default_factory=list)

    def add(self, name: str, target: Target, data: bytes, *, seconds: float = TIME_LIMIT) -> None:
        """Try one input, which may take so many seconds of the processor."""
        self.cases[name] += 1
        try:
            with _time_limit(seconds):
                target.run(data)
        except Problem as problem:
            self.problems[name] += 1
            try:
                require_readable(problem)
            except AssertionError as fault:
                self.faults.append((name, data, str(fault)))
        except KeyboardInterrupt:
            raise
        except BaseException:  # a panic of a library in Rust is no Exception
            self.faults.append((name, data, traceback.format_exc()))


class TooSlow(BaseException):
    """A case took too long."""


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # of this process, however busy the machine is
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def mutate(data: bytes, choose: random.Random) -> bytes:
    """The data after a few random changes: flipped, removed, repeated, exchanged or inserted pieces."""
    changed = bytearray(data)
    for _ in range(choose.choice((1, 1, 1, 2, 3, 8))):
        start = choose.randrange(len(changed) + 1)
        end = min(len(changed), start + choose.choice((1, 1, 2, 4, 16, 64)))
        piece = bytes(changed[start:end])
        kind = choose.randrange(7)
        if kind == 0 and piece:
            changed[start] ^= 1 << choose.randrange(8)
        elif kind == 1:
            del changed[start:end]
        elif kind == 2:
            changed[start:start] = piece * choose.choice((1, 2, 10, 100))
        elif kind == 3:
            changed[start:end] = choose.choice(TOKENS)
        elif kind == 4:
            changed[start:start] = choose.choice(TOKENS)
        elif kind == 5:
            _exchange_word(changed, choose)
        elif choose.random() < 0.2:
            del changed[start:]
    return bytes(changed)


def _exchange_word(changed: bytearray, choose: random.Random) -> None:
    """Put another value in the place of a number or word, so that the structure stays whole."""
    words = list(re.finditer(rb'"[^"\n]{0,60}"|[\w.+-]+', bytes(changed[:20_000])))
    if words:
        found = choose.choice(words)
        other = choose.choice((*TOKENS, choose.choice(words)[0]))
        changed[found.start() : found.end()] = other


def attack(figures: Figures, name: str, *, seed: int, cases: int) -> None:
    """Try a target's seeds and so many mutations of them."""
    target, choose = TARGETS[name], random.Random(f"{seed} {name}")
    seeds = target.seeds()
    for data in seeds:
        figures.add(name, target, data)
    for _ in range(cases):
        figures.add(name, target, mutate(choose.choice(seeds), choose))


def share_cases(total: int, names: Sequence[str]) -> dict[str, int]:
    """How many of all cases each target gets, by its share."""
    shares = {name: TARGETS[name].share for name in names}
    return {name: -int(-total * share // sum(shares.values())) for name, share in shares.items()}


def _attack_guided(name: str, seconds: int) -> tuple[int, str]:
    """The number of cases that atheris tried in a process of its own, and its fault, if any."""
    command = [sys.executable, str(Path(__file__).with_name("guided.py")), name, f"-max_total_time={seconds}"]
    done = subprocess.run(
        [*command, f"-timeout={TIME_LIMIT}"], capture_output=True, text=True, errors="replace"
    )
    runs = re.findall(r"^#(\d+)|Done (\d+) runs", done.stderr, re.MULTILINE)
    count = max((int(a or b) for a, b in runs), default=0)
    return count, "" if done.returncode == 0 else done.stderr[-3000:] + done.stdout[-3000:]


def _limit_memory() -> None:
    """From here on, a case that needs more than `MEMORY_LIMIT` fails with a MemoryError, which is a fault."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_LIMIT
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> None:
    """Parse the options, attack, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=1_000_000, help="mutations of all targets together")
    parser.add_argument("--guided", type=int, default=0, help="seconds guided by coverage (atheris)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", nargs="*", default=list(TARGETS))
    options = parser.parse_args()
    figures = run(options.targets, cases=options.cases, guided_seconds=options.guided, seed=options.seed)
    _report_faults(figures)
    remove_files()
    sys.exit(bool(figures.faults))


def run(names: Sequence[str], *, cases: int, guided_seconds: int, seed: int) -> Figures:
    """Attack the targets, and print a line of figures for each."""
    figures, shares = Figures(), share_cases(cases, names)
    figures.add(names[-1], TARGETS[names[-1]], b"")  # imports what all need, before memory is limited
    _limit_memory()
    for name in names:
        if shares[name]:
            attack(figures, name, seed=seed, cases=shares[name])
        if guided_seconds and importlib.util.find_spec("atheris"):
            figures.guided[name], fault = _attack_guided(name, max(1, guided_seconds // len(names)))
            figures.faults += [(name, b"", fault)] if fault else []
        _print_figures(figures, name)
    _print_figures(figures)
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB", flush=True)
    return figures


def _print_figures(figures: Figures, name: str | None = None) -> None:
    """A line about one target, or about all."""
    counts = [
        counter.total() if name is None else counter[name]
        for counter in (figures.cases, figures.problems, figures.guided)
    ]
    faults = sum(name in (None, each[0]) for each in figures.faults)
    cases, problems, guided = counts
    print(
        f"{name or 'all':24}{cases:>10,} cases{problems:>10,} problems{guided:>10,} guided{faults:>5} faults",
        flush=True,
    )


def _report_faults(figures: Figures) -> None:
    """Write the inputs of faults, and print one traceback of each kind."""
    seen = set()
    for name, data, description in figures.faults:
        kind = description.strip().splitlines()[-1][:100] + "".join(re.findall(r"line \d+", description)[-2:])
        if kind in seen:
            continue
        seen.add(kind)
        FAULTS.mkdir(parents=True, exist_ok=True)
        path = FAULTS / f"{name.replace(' ', '-')}-{hashlib.sha256(data).hexdigest()[:12]}"
        path.write_bytes(data)
        print(f"\n{name}, input in {path}:\n{description[-1500:]}")


if __name__ == "__main__":
    main()
