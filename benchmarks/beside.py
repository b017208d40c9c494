"""The speed of this tree beside that of an earlier commit, measured in turns in one run.

    python benchmarks/beside.py COMMIT [--rounds 4] [--only one]... [--device cuda] [--threads 1]

The commit is checked out into a temporary folder. Each round measures both trees, each in a process of its
own with its own package and, where it has one, its own copy of this file; whoever goes first changes from
round to round (A B, B A, …), so that what else the machine does hits both. The ratio says how many times as
fast this tree is: its median over the rounds, and its smallest and largest. `answers` says whether both came
to the same loss, or the same texts, in every round. `busy` is the median ratio of the time that a processor
worked for it: on a CPU that others use, too, it is steadier than the clock on the wall. Uncommitted changes
of this tree are part of it. With its own commit (HEAD) the ratios show what is noise.

    python benchmarks/beside.py --measure one [--device cuda] [--threads 1]

is what runs in each process: one measure of the package that is on the path, as JSON. Where the package's
names change, this part of the file changes with them; what is measured has to stay the same.
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
PAIRS = 4_000  # dates to train on
STEPS = {"cpu": 30, "cuda": 500}  # so many do not count, and so many do
BATCH = {"cpu": 8, "cuda": 32}  # sentences at once
TIMES = 3  # of what is short, the median counts; one more before that does not
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
    """Seconds on the wall's clock, and those that a processor worked for this process and its children."""

    wall: float
    busy: float

    @classmethod
    def now(cls) -> Spent:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(time.perf_counter(), time.process_time() + children.ru_utime + children.ru_stime)

    def until(self, later: Spent, count: int) -> Spent:
        """What each of so many things took."""
        return Spent((later.wall - self.wall) / count, (later.busy - self.busy) / count)

    @classmethod
    def median(cls, all_of_them: Sequence[Spent]) -> Spent:
        return cls(*map(statistics.median, zip(*all_of_them, strict=True)))


def kind(device: str) -> str:
    """The device without its number."""
    return device.partition(":")[0]


# What is measured: each answers with the seconds of one step, sentence or command, and with what came out.


def train_difformer(device: str) -> tuple[Spent, str]:
    """A step of Difformer's tiny preset on dates."""
    changes = {"tokenizer": "characters", "max_source": 48, "max_target": 16}
    return _training("difformer", device, changes)


def train_diffuseq(device: str) -> tuple[Spent, str]:
    """A step of DiffuSeq's tiny preset on dates."""
    return _training("diffuseq", device, {})


def one(device: str) -> tuple[Spent, str]:
    """A sentence, from text to text, by the shipped model, nothing else at the same time."""
    import noise2text

    model = noise2text.load("de-en", device=device)
    return _median(lambda: [model.generate([text]).texts[0] for text in SENTENCES], len(SENTENCES))


def batches(device: str) -> tuple[Spent, str]:
    """A sentence of several batches, in which short and long ones are equally many."""
    import noise2text

    size, model = BATCH[kind(device)], noise2text.load("de-en", device=device)
    texts = [*SENTENCES] * (2 * size // len(SENTENCES))
    return _median(lambda: model.generate(texts, batch=size).texts, len(texts))


def start(device: str) -> tuple[Spent, str]:
    """The command that only says its version."""
    return _command("--version")


def recipes(device: str) -> tuple[Spent, str]:
    """The shortest command that does something."""
    return _command("recipes")


def help_page(device: str) -> tuple[Spent, str]:
    """The page that lists all commands."""
    return _command("--help")


class _Done(Exception):
    """All steps that count have been taken."""


class _Clock:
    """A display that notes when steps are done, and ends the run after the last."""

    def __init__(self, device: str, last: int) -> None:
        self.device, self.last, self.times = device, last, dict[int, Spent]()

    def say(self, line: str) -> None:
        pass

    def start(self, total: int) -> None:
        pass

    def progress(self, step: int, summary: str) -> None:
        if kind(self.device) == "cuda":
            import torch

            torch.cuda.synchronize()
        self.times[step] = Spent.now()
        if step == self.last:
            raise _Done


def _training(recipe: str, device: str, changes: dict[str, Any]) -> tuple[Spent, str]:
    """The seconds of a step of a run like any other, but for its end, and the last mean loss."""
    import noise2text
    from noise2text.text.dates import write_dates

    steps = STEPS[kind(device)]
    clock, never = _Clock(device, 2 * steps), 1_000 * steps
    often = {"steps": never, "log_every": steps, "validate_every": never, "save_every": never}
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
                display=clock,
            )
        loss = json.loads((out / "metrics.jsonl").read_text("utf-8").splitlines()[-1])["loss"]
    return clock.times[steps].until(clock.times[2 * steps], steps), f"loss {loss!r}"


def _command(*words: str) -> tuple[Spent, str]:
    """The seconds of a command; what it prints may change."""

    def run() -> list[str]:
        subprocess.run([sys.executable, "-m", "noise2text", *words], check=True, stdout=subprocess.DEVNULL)
        return []

    return _median(run, 1)


def _median(work: Callable[[], list[str]], count: int) -> tuple[Spent, str]:
    """The median seconds of the work, of which there is so much, and a digest of its texts."""
    texts, times = work(), []
    for _ in range(TIMES):
        begin = Spent.now()
        work()
        times.append(begin.until(Spent.now(), count))
    return Spent.median(times), hashlib.sha256("\n".join(texts).encode()).hexdigest() if texts else ""


@dataclass(frozen=True)
class Measure:
    """What is measured, and how its seconds are shown: as a rate, or in milliseconds."""

    take: Callable[[str], tuple[Spent, str]]
    title: str
    rate: str = ""

    def shown(self, seconds: float) -> str:
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
    """Print what one measure of the package on the path gave."""
    import noise2text

    if name not in ("start", "recipes", "help"):
        import torch

        torch.set_num_threads(threads)
    spent, answer = MEASURES[name].take(device)
    package = str(Path(noise2text.__file__).resolve())
    print(json.dumps({"seconds": spent.wall, "busy": spent.busy, "answer": answer, "package": package}))


# How the trees are compared.


class Failed(Exception):
    """A measure that a tree could not take, and why."""


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A folder with the commit's files, for as long as it is needed."""
    with TemporaryDirectory() as folder:
        tree = Path(folder).resolve() / "before"
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def taken(tree: Path, name: str, device: str, threads: int) -> dict[str, Any]:
    """One measure of a tree, taken in a process of its own by the tree's own copy of this file."""
    own = tree / WORKER
    environment = os.environ | {
        "PYTHONPATH": str(tree / "src"),
        "RAYON_NUM_THREADS": str(threads),
        "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "1000"),  # as the command has it
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    command = [sys.executable, "-P", str(own if own.exists() else HERE / WORKER), "--measure", name]
    with TemporaryDirectory() as folder:  # where no folder of a shipped model's name is
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
        raise Failed(f"{tree.name}: measured {found['package']}, which is another tree's")
    return found


def compared(name: str, trees: tuple[Path, Path], rounds: int, device: str, threads: int) -> str:
    """A measure's row of the table."""
    found: dict[Path, list[dict[str, Any]]] = {tree: [] for tree in trees}
    for number in range(rounds):
        for tree in trees if number % 2 == 0 else trees[::-1]:
            found[tree].append(taken(tree, name, device, threads))
    before, now = ([Spent(one["seconds"], one["busy"]) for one in found[tree]] for tree in trees)
    ratios = [a.wall / b.wall for a, b in zip(before, now, strict=True)]
    busy = statistics.median(a.busy / b.busy for a, b in zip(before, now, strict=True))
    answers = {one["answer"] for tree in trees for one in found[tree]}
    same = "" if answers == {""} else "same" if len(answers) == 1 else "other"
    shown = MEASURES[name].shown
    medians = shown(Spent.median(before).wall), shown(Spent.median(now).wall)
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return row(
        MEASURES[name].title, *medians, f"{statistics.median(ratios):.3f}", spread, f"{busy:.3f}", same
    )


def row(title: str, before: str, now: str, ratio: str, spread: str, busy: str, answers: str) -> str:
    """A line of the table."""
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
    if kind(device) not in STEPS or threads < 1 or rounds < 1:
        parser.error("the device is cpu or cuda, and there is at least 1 thread and 1 round")
    if arguments.measure:
        return measure(arguments.measure, device, threads)
    if not arguments.commit:
        parser.error("name the commit to measure beside")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and leave no checkout behind
    problems = []
    with checked_out(arguments.commit) as before:
        print(f"{device}, {threads} threads, {rounds} rounds, torch {version('torch')}; ratio: times as fast")
        print(row("measure", arguments.commit[:18], "now", "ratio", "spread", "busy", "answers"), flush=True)
        for name in arguments.only or MEASURES:
            try:
                print(compared(name, (before, HERE), rounds, device, threads), flush=True)
            except Failed as problem:
                problems.append(f"{name} was not measured: {problem}")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
