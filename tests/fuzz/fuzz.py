"""Attack every parser with mutated input, and print the figures: cases, problems, faults.

    python tests/fuzz/fuzz.py --seconds 300             # mutations, a share of the time for each target
    python tests/fuzz/fuzz.py --seconds 300 --guided    # and as much again, guided by coverage (atheris)

The law: an input works, or raises a Problem of at most 500 characters, within 20 seconds. Anything else is a
fault; its input is written to build/fuzz/, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import importlib.util
import random
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from noise2text.core.errors import MAX_MESSAGE, Problem
from tests.fuzz.targets import TARGETS, Target, remove_files

__all__ = ["Figures", "attack", "mutate"]

TIME_LIMIT = 20  # seconds of the processor per case
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
    faults: list[tuple[str, bytes, str]] = field(default_factory=list)

    def add(self, name: str, target: Target, data: bytes) -> None:
        """Try one input."""
        self.cases[name] += 1
        try:
            with _time_limit():
                target.run(data)
        except Problem as problem:
            self.problems[name] += 1
            if len(str(problem)) > MAX_MESSAGE:
                self.faults.append((name, data, "the message is too long"))
        except KeyboardInterrupt:
            raise
        except BaseException:  # a panic of a library in Rust is no Exception
            self.faults.append((name, data, traceback.format_exc()))


class TooSlow(BaseException):
    """A case took too long."""


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, TIME_LIMIT)  # of this process, however busy the machine is
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


def attack(figures: Figures, name: str, *, seed: int, cases: int | None = None, seconds: float = 0) -> None:
    """Try mutations of a target's seeds, as many as asked for or for as long."""
    target, choose = TARGETS[name], random.Random(f"{seed} {name}")
    seeds, end = target.seeds(), time.monotonic() + seconds
    for data in seeds:
        figures.add(name, target, data)
    number = 0
    while number < cases if cases is not None else time.monotonic() < end:
        figures.add(name, target, mutate(choose.choice(seeds), choose))
        number += 1


def _attack_guided(name: str, seconds: int) -> tuple[int, str]:
    """The number of cases that atheris tried in a process of its own, and its fault, if any."""
    command = [sys.executable, str(Path(__file__).with_name("guided.py")), name, f"-max_total_time={seconds}"]
    done = subprocess.run(
        [*command, f"-timeout={TIME_LIMIT}"], capture_output=True, text=True, errors="replace"
    )
    runs = re.findall(r"^#(\d+)|Done (\d+) runs", done.stderr, re.MULTILINE)
    count = max((int(a or b) for a, b in runs), default=0)
    return count, "" if done.returncode == 0 else done.stderr[-3000:] + done.stdout[-3000:]


def main() -> None:
    """Parse the options, attack, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=300, help="of all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--guided", action="store_true", help="attack again, guided by coverage (atheris)")
    parser.add_argument("--targets", nargs="*", default=list(TARGETS))
    options = parser.parse_args()
    figures, share = Figures(), options.seconds / len(options.targets)
    guided: collections.Counter[str] = collections.Counter()
    for name in options.targets:
        attack(figures, name, seed=options.seed, seconds=share)
        if options.guided and importlib.util.find_spec("atheris"):
            guided[name], fault = _attack_guided(name, max(1, round(share)))
            figures.faults += [(name, b"", fault)] if fault else []
        faults = [each for each in figures.faults if each[0] == name]
        print(
            f"{name:24}{figures.cases[name]:>9,} cases{figures.problems[name]:>9,} problems"
            f"{guided[name]:>10,} guided{len(faults):>5} faults",
            flush=True,
        )
    print(
        f"{'all':24}{figures.cases.total():>9,} cases{figures.problems.total():>9,} problems"
        f"{guided.total():>10,} guided{len(figures.faults):>5} faults"
    )
    _report_faults(figures)
    remove_files()
    sys.exit(bool(figures.faults))


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
