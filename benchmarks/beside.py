"""Measure how fast this tree is next to an earlier commit, in turns and in one run.

    python benchmarks/beside.py COMMIT [--rounds 4] [--only one]... [--device cuda] [--threads 1]

The commit is checked out into a temporary folder; where there is no repository, give a folder that has its
files instead of its name. Each round measures both trees, each in its own process
with its own package and, if the tree has one, its own copy of this file. The order alternates (A B, B A, …),
so that other work on the machine affects both. The columns:

    ratio    how many times as fast this tree is: the median over the rounds
    spread   the smallest and the largest ratio
    busy     the median ratio of CPU time; on a shared CPU it is steadier than wall-clock time
    answers  whether both trees came to the same loss, or the same texts, in every round

Uncommitted changes of this tree are included. Give HEAD as the commit to see how much is noise.

    python benchmarks/beside.py --measure one [--device cuda] [--threads 1]

runs in each process: one measure of the package on the path, printed as JSON. If names in the package change,
change this part of the file; what it measures must stay the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parents[1]
WORKER = Path("benchmarks") / "beside.py"
PAIRS = 4_000  # training pairs
STEPS = {"cpu": 30, "cuda": 500}  # steps of warm-up, and then as many that count
BATCH = {"cpu": 8, "cuda": 32}  # sentences per batch
TIMES = 3  # repetitions of short measures, after one of warm-up; the median counts
SENTENCES = (
    "Guten Morgen!",
    "Wo ist der Bahnhof?",
    "Ich habe heute keine Zeit.",
    "Kannst du mir bitte das Salz geben?",
    "Sie möchte heute Abend mit uns ins Kino gehen.",
    "Er hat mir gestern ein Buch über die Geschichte der Stadt geliehen.",
    "Wenn es morgen nicht regnet, fahren wir mit dem Fahrrad an den See.",
    "Tom weiß nicht, warum Maria den Brief nicht beantwortet hat.",
)


class Spent(NamedTuple):
    """Wall-clock seconds, and CPU seconds of this process and its children."""

    wall: float
    busy: float

    @classmethod
    def now(cls) -> Spent:
        """The present moment."""
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(time.perf_counter(), time.process_time() + children.ru_utime + children.ru_stime)

    def until(self, later: Spent, count: int) -> Spent:
        """The time per item between this moment and a later one, of `count` items."""
        return Spent((later.wall - self.wall) / count, (later.busy - self.busy) / count)

    @classmethod
    def median(cls, times: Sequence[Spent]) -> Spent:
        """The median of each."""
        return cls(*map(statistics.median, zip(*times, strict=True)))


def device_type(device: str) -> str:
    """The device without its number."""
    return device.partition(":")[0]


# The measures. Each returns the time of one step, sentence or command, and the result.


def train_difformer(device: str) -> tuple[Spent, str]:
    """One training step of Difformer's tiny preset on dates."""
    changes = {"tokenizer": "characters", "max_source": 48, "max_target": 16}
    return _measure_training("difformer", device, changes)


def train_diffuseq(device: str) -> tuple[Spent, str]:
    """One training step of DiffuSeq's tiny preset on dates."""
    return _measure_training("diffuseq", device, {})


def one(device: str) -> tuple[Spent, str]:
    """One sentence, from text to text, by the shipped model, one sentence at a time."""
    import noise2text

    model = noise2text.load("de-en", device=device)
    return _measure_median(lambda: [model.generate([text]).texts[0] for text in SENTENCES], len(SENTENCES))


def batches(device: str) -> tuple[Spent, str]:
    """One sentence out of several batches with as many short sentences as long ones."""
    import noise2text

    size, model = BATCH[device_type(device)], noise2text.load("de-en", device=device)
    texts = [*SENTENCES] * (2 * size // len(SENTENCES))
    return _measure_median(lambda: model.generate(texts, batch=size).texts, len(texts))


def start(device: str) -> tuple[Spent, str]:
    """The command that prints the version."""
    return _measure_command("--version")


def recipes(device: str) -> tuple[Spent, str]:
    """The shortest command that does something."""
    return _measure_command("recipes")


def help_page(device: str) -> tuple[Spent, str]:
    """The page that lists all commands."""
    return _measure_command("--help")


class _Done(Exception):
    """The last step that counts is done."""


class _StepTimer:
    """A display that notes the time of steps and ends the run after the last one."""

    def __init__(self, device: str, last: int) -> None:
        self.device, self.last, self.times = device, last, dict[int, Spent]()

    def show_line(self, line: str) -> None:
        pass

    def start(self, total: int) -> None:
        pass

    def progress(self, step: int, summary: str) -> None:
        if device_type(self.device) == "cuda":
            import torch

            torch.cuda.synchronize()
        self.times[step] = Spent.now()
        if step == self.last:
            raise _Done


def _measure_training(recipe: str, device: str, changes: dict[str, Any]) -> tuple[Spent, str]:
    """The time per step of a normal run, which is stopped after the last step, and the last mean loss."""
    import noise2text
    from noise2text.data.dates import write_dates

    steps = STEPS[device_type(device)]
    timer, never = _StepTimer(device, 2 * steps), 1_000 * steps
    often = {"optim.steps": never, "log_every": steps, "validate_every": never, "save_every": never}
    with TemporaryDirectory() as folder:
        corpus, out = Path(folder) / "dates", Path(folder) / "run"
        write_dates(corpus, pairs=PAIRS, seed=0)
        with suppress(_Done):
            noise2text.train(
                recipe,
                train=str(corpus / "train.jsonl"),
                valid=str(corpus / "valid.jsonl"),
                out=out,
                preset="tiny",
                changes=changes | often,
                device=device,
                display=timer,
            )
        loss = json.loads((out / "metrics.jsonl").read_text("utf-8").splitlines()[-1])["loss"]
    return timer.times[steps].until(timer.times[2 * steps], steps), f"loss {loss!r}"


def _measure_command(*words: str) -> tuple[Spent, str]:
    """The time of a command; its output is not compared."""

    def run() -> list[str]:
        subprocess.run([sys.executable, "-m", "noise2text", *words], check=True, stdout=subprocess.DEVNULL)
        return []

    return _measure_median(run, 1)


def _measure_median(work: Callable[[], list[str]], count: int) -> tuple[Spent, str]:
    """The median time per item of work with `count` items, and a hash of its texts."""
    texts, times = work(), []
    for _ in range(TIMES):
        begin = Spent.now()
        work()
        times.append(begin.until(Spent.now(), count))
    return Spent.median(times), hashlib.sha256("\n".join(texts).encode()).hexdigest() if texts else ""


@dataclass(frozen=True)
class Measure:
    """A measure, its title, and how its time is shown: as a rate, or in milliseconds."""

    run: Callable[[str], tuple[Spent, str]]
    title: str
    rate: str = ""

    def format(self, seconds: float) -> str:
        return f"{1 / seconds:.1f} {self.rate}" if self.rate else f"{1000 * seconds:.1f} ms"


MEASURES = {
    "difformer": Measure(train_difformer, "training, difformer tiny", "steps/s"),
    "diffuseq": Measure(train_diffuseq, "training, diffuseq tiny", "steps/s"),
    "one": Measure(one, "generation, one by one"),
    "batches": Measure(batches, "generation, in batches", "sentences/s"),
    "start": Measure(start, "noise2text --version"),
    "recipes": Measure(recipes, "noise2text recipes"),
    "help": Measure(help_page, "noise2text --help"),
}


def measure(name: str, device: str, threads: int) -> None:
    """Print one measure of the package on the path as JSON."""
    import noise2text

    if name not in ("start", "recipes", "help"):
        import torch

        torch.set_num_threads(threads)
    spent, answer = MEASURES[name].run(device)
    package = str(Path(noise2text.__file__).resolve())
    print(json.dumps({"seconds": spent.wall, "busy": spent.busy, "answer": answer, "package": package}))


# The comparison of the two trees.


class Failed(Exception):
    """A measure that failed in a tree, and why."""


@contextmanager
def check_out(commit: str) -> Iterator[Path]:
    """A temporary folder with the commit's files, or the folder of this name, which has them already."""
    if Path(commit).is_dir():
        yield Path(commit).resolve()
        return
    with TemporaryDirectory() as folder:
        tree = Path(folder).resolve() / "before"
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def measure_in(tree: Path, name: str, device: str, threads: int) -> dict[str, Any]:
    """One measure of a tree, in its own process and with its own copy of this file."""
    own = tree / WORKER
    environment = os.environ | {
        "PYTHONPATH": str(tree / "src"),
        "RAYON_NUM_THREADS": str(threads),
        "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "1000"),  # as the command sets it
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has bytecode
    command = [sys.executable, "-P", str(own if own.exists() else HERE / WORKER), "--measure", name]
    with TemporaryDirectory() as folder:  # so that no folder is mistaken for a shipped model
        done = subprocess.run(
            [*command, "--device", device, "--threads", str(threads)],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise Failed(f"{tree.name}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if not Path(found["package"]).is_relative_to(tree):
        raise Failed(f"{tree.name}: measured {found['package']}, which is in another tree")
    return found


def compare(name: str, trees: tuple[Path, Path], rounds: int, device: str, threads: int) -> str:
    """One row of the table: the measure in both trees."""
    found: dict[Path, list[dict[str, Any]]] = {tree: [] for tree in trees}
    for number in range(rounds):
        for tree in trees if number % 2 == 0 else trees[::-1]:
            found[tree].append(measure_in(tree, name, device, threads))
    before, now = ([Spent(one["seconds"], one["busy"]) for one in found[tree]] for tree in trees)
    ratios = [a.wall / b.wall for a, b in zip(before, now, strict=True)]
    busy = statistics.median(a.busy / b.busy for a, b in zip(before, now, strict=True))
    answers = {one["answer"] for tree in trees for one in found[tree]}
    same = "" if answers == {""} else "same" if len(answers) == 1 else "other"
    format_time = MEASURES[name].format
    medians = format_time(Spent.median(before).wall), format_time(Spent.median(now).wall)
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return format_row(
        MEASURES[name].title, *medians, f"{statistics.median(ratios):.3f}", spread, f"{busy:.3f}", same
    )


def format_row(title: str, before: str, now: str, ratio: str, spread: str, busy: str, answers: str) -> str:
    """One line of the table."""
    return f"{title:<26} {before:>18} {now:>18} {ratio:>7} {spread:>13} {busy:>6}  {answers}".rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", nargs="?")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", action="append", choices=MEASURES)
    parser.add_argument("--measure", choices=MEASURES)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    device, threads, rounds = arguments.device, arguments.threads, arguments.rounds
    if device_type(device) not in STEPS or threads < 1 or rounds < 1:
        parser.error("the device must be cpu or cuda, and threads and rounds at least 1")
    if arguments.measure:
        return measure(arguments.measure, device, threads)
    if not arguments.commit:
        parser.error("name the commit to compare with")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the checkout is removed
    problems = []
    with check_out(arguments.commit) as before:
        print(f"{device}, {threads} threads, {rounds} rounds, torch {version('torch')}; ratio: times as fast")
        print(
            format_row("measure", arguments.commit[:18], "now", "ratio", "spread", "busy", "answers"),
            flush=True,
        )
        for name in arguments.only or MEASURES:
            try:
                print(compare(name, (before, HERE), rounds, device, threads), flush=True)
            except Failed as problem:
                problems.append(f"{name} was not measured: {problem}")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
