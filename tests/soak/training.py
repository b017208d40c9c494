"""Attack training until the time is over, and count what it survives: `make soak`.

A small Difformer is trained on dates again and again, on one process and on two. Attempts are killed with
SIGKILL at random moments, the newest checkpoint is truncated or a bit of it flipped, files may not exceed a
random size, as on a full disk, and the corpus is changed between two attempts. Another process loads the
model folder all the time. Every run must end with the weights and the metrics of one that nothing disturbed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import distributed

from noise2text.core.errors import Problem
from noise2text.data.dates import write_dates
from noise2text.training.checkpoint import list_checkpoints

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["noise2text.commands.train", "torch.distributed.checkpoint"])

CHANGES: dict[str, Any] = {
    **{"tokenizer": "characters", "model_dim": 32, "ffn_dim": 64, "heads": 2, "embedding_dim": 8},
    **{"encoder_layers": 1, "decoder_layers": 1, "max_source": 48, "max_target": 16, "max_tokens": 512},
    **{"warmup": 2, "log_every": 3, "validation_sentences": 4, "ema_decay": 0.9, "noise_factor": 2.0},
    **{"optim.steps": 40, "save_every": 4, "validate_every": 5},
}
PATIENCE = 60.0  # seconds in which the processes of a run must end after one of them has
REFUSED = 3  # the exit code of an attempt that ended with a Problem


@dataclass
class Soak:
    """The state of an attack: its folder, its random numbers and what it has counted."""

    folder: Path
    rng: random.Random
    figures: Counter[str] = field(default_factory=Counter)

    @property
    def corpus(self) -> Path:
        return self.folder / "corpus"

    def start(self, out: Path, processes: int, *, limit: int | None = None) -> list[Any]:
        """The processes of an attempt to go on with a run; `limit` is the size that no file may exceed."""
        store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.store = store  # alive as long as the attempt
        attempt = [
            CONTEXT.Process(target=train_once, args=(self.corpus, out, rank, processes, store.port, limit))
            for rank in range(processes)
        ]
        for process in attempt:
            process.start()
        return attempt

    def run_attempt(self, out: Path, processes: int, *, limit: int | None = None) -> set[int]:
        """The exit codes of an attempt that nobody kills."""
        attempt = self.start(out, processes, limit=limit)
        for process in attempt:
            process.join()
            deadline = time.monotonic() + PATIENCE
            while any(other.is_alive() for other in attempt) and process.exitcode and processes > 1:
                assert time.monotonic() < deadline, "one process ended and the other did not"
                time.sleep(0.05)
        return {process.exitcode for process in attempt}

    def run_undisturbed(self, processes: int) -> tuple[Path, float]:
        """A run that nothing disturbs, and its seconds."""
        out, started = self.folder / f"undisturbed-{processes}", time.monotonic()
        assert self.run_attempt(out, processes) == {0}, "the undisturbed run failed"
        return out, time.monotonic() - started

    def attack_run(self, name: str, expected: Path, processes: int, seconds: float, kills: int) -> None:
        """Kill a run at random moments, with other faults in between, then let it end and compare."""
        out = self.folder / name
        with load_all_the_time(out) as figures:
            for _ in range(kills):
                attempt = self.start(out, processes)
                time.sleep(self.rng.uniform(0, seconds))
                killed = self.rng.choice(attempt) if self.rng.random() < 0.5 else attempt[0]
                for process in (killed, *(each for each in attempt if each is not killed)):
                    process.kill()
                for process in attempt:
                    process.join()
                self.figures["kills"] += 1
                self.rng.choice((self.damage, self.fill_disk, self.change_corpus, lambda *_: None))(
                    out, processes
                )
            assert self.run_attempt(out, processes) == {0}, f"{name} could not go on"
            assert_same(out, expected)
        self.figures[f"runs on {processes} equal to the undisturbed one"] += 1
        self.figures.update(figures)

    def damage(self, out: Path, processes: int) -> None:
        """Truncate a file of the newest checkpoint or flip one of its bits, if there is an older one."""
        checkpoints = list_checkpoints(out)
        if len(checkpoints) < 2:
            return
        file = self.rng.choice([path for path in sorted(checkpoints[-1].rglob("*")) if path.is_file()])
        content, place = bytearray(file.read_bytes()), self.rng.randrange(file.stat().st_size)
        if self.rng.random() < 0.5:
            content = content[:place]
        else:
            content[place] ^= 1 << self.rng.randrange(8)
        file.write_bytes(content)
        self.figures["checkpoints damaged"] += 1

    def fill_disk(self, out: Path, processes: int) -> None:
        """An attempt whose files may not exceed a random size is refused in a sentence, or fits."""
        codes = self.run_attempt(out, processes, limit=self.rng.randrange(1_000, 200_000))
        others = {1} if processes > 1 else set()  # they notice that the process that was refused is gone
        assert codes <= {0, REFUSED} | others, f"a full disk ended with {codes}"
        drafts = [path for path in out.rglob("*.draft") if REFUSED in codes]
        assert not drafts, f"a full disk left {drafts}"
        self.figures["full disks"] += 1

    def change_corpus(self, out: Path, processes: int) -> None:
        """A run whose corpus has changed is refused; the corpus is then restored."""
        if not (out / "run.json").exists():
            return
        file = self.corpus / "train.jsonl"
        content = file.read_bytes()
        file.write_bytes(content[: content.rindex(b"\n", 0, -1) + 1])
        assert self.run_attempt(out, processes) <= {REFUSED, 1}, "a changed corpus was not refused"
        file.write_bytes(content)
        self.figures["changed corpora refused"] += 1


def train_once(corpus: Path, out: Path, rank: int, processes: int, port: int, limit: int | None) -> None:
    """One process of an attempt; it exits with REFUSED for a Problem, and without a word."""
    import torch

    from noise2text.commands.train import train

    torch.set_num_threads(1)
    if processes > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    files: dict[str, Any] = {name: str(corpus / f"{name}.jsonl") for name in ("train", "valid")}
    try:
        train("difformer", out=out, preset="tiny", changes=CHANGES, device="cpu", resume=True, **files)
    except Problem:
        os._exit(REFUSED)
    except RuntimeError as error:
        if "by peer" in str(error):  # the other process was refused
            os._exit(1)
        raise
    os._exit(0)


@contextmanager
def load_all_the_time(out: Path) -> Iterator[Counter[str]]:
    """Context manager: a process loads the model folder all the time; its figures are there at the end."""
    figures: Counter[str] = Counter()
    receiver, sender = CONTEXT.Pipe(duplex=False)
    stop = CONTEXT.Event()
    reader = CONTEXT.Process(target=keep_loading, args=(out, stop, sender))
    reader.start()
    try:
        yield figures
    finally:
        stop.set()
        loads, failures = receiver.recv()
        reader.join()
    assert not failures, failures
    figures["loads of the model meanwhile"] = loads


def keep_loading(out: Path, stop: Any, sender: Any) -> None:
    """Load the model once it is there, until `stop`; send the number of loads and what failed."""
    import torch

    from noise2text.models.folder import load

    torch.set_num_threads(1)
    loads, failures = 0, []
    while not stop.is_set():
        if not (out / "model.safetensors").exists():
            time.sleep(0.01)
            continue
        try:
            load(out, device="cpu", precision="float32")
            loads += 1
        except Exception as error:
            failures.append(repr(error))
    sender.send((loads, failures))


def assert_same(out: Path, expected: Path) -> None:
    """The weights and the metrics of a run are those of another, and nothing is left behind."""
    assert (out / "model.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()
    assert read_metrics(out) == read_metrics(expected)
    assert not [*out.rglob("*.draft"), *out.glob("*.discarded")]


def read_metrics(out: Path) -> list[dict[str, float]]:
    """The lines of metrics.jsonl, without the speed."""
    records = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in each.items() if name != "tokens_per_second"} for each in records]


def soak(folder: Path, *, seconds: float, seed: int, kills: int = 12, most_runs: int | None = None) -> Soak:
    """Attack runs on one and on two processes in turn until the time is over; returns the figures."""
    attack, started = Soak(folder, random.Random(seed)), time.monotonic()
    write_dates(attack.corpus, pairs=200, seed=0)
    undisturbed = {processes: attack.run_undisturbed(processes) for processes in (1, 2)}
    number = 0
    while time.monotonic() - started < seconds and number != most_runs:
        processes = 1 + number % 2
        expected, duration = undisturbed[processes]
        attack.attack_run(f"run-{number}", expected, processes, duration / 2, kills)
        number += 1
    return attack


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done = soak(Path(folder), seconds=60 * arguments.minutes, seed=arguments.seed)
    for name, count in done.figures.items():
        print(f"{count:7,}  {name}")


if __name__ == "__main__":
    main()
