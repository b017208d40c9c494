"""Attack training until the time is over, and count what it survives.

A small Difformer is trained on dates again and again, on one process and on two. Attempts are killed with
SIGKILL at random moments and just after a file was opened or renamed, the newest checkpoint is truncated or a
bit of it flipped, files may not exceed a random size, as on a full disk, the folder is read-only for a while,
and the corpus or a setting is changed between two attempts. Another process loads the
model folder all the time. Every run must end with the weights and the metrics of one that nothing disturbed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
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

from ..faults import NO_FAULT, REFUSED, Fault

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["noise2text.commands.train", "torch.distributed.checkpoint"])

CHANGES: dict[str, Any] = {
    **{"tokenizer": "characters", "model_dim": 32, "ffn_dim": 64, "heads": 2, "embedding_dim": 8},
    **{"encoder_layers": 1, "decoder_layers": 1, "max_source": 48, "max_target": 16, "max_tokens": 512},
    **{"warmup": 2, "log_every": 3, "validation_sentences": 4, "ema_decay": 0.9, "noise_factor": 2.0},
    **{"optim.steps": 40, "save_every": 4, "validate_every": 5},
}
PATIENCE = 60.0  # seconds in which the processes of a run must end after one of them has


@dataclass
class TrainingAttack:
    """The state of an attack: its folder, its random numbers and what it has counted."""

    folder: Path
    rng: random.Random
    end: float  # by time.monotonic(); no further kill comes then
    figures: Counter[str] = field(default_factory=Counter)

    @property
    def corpus(self) -> Path:
        return self.folder / "corpus"

    def start(self, out: Path, processes: int, *, fault: Fault = NO_FAULT) -> list[Any]:
        """The processes of an attempt to go on with a run."""
        store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.store = store  # alive as long as the attempt
        attempt = [
            CONTEXT.Process(target=train_once, args=(self.corpus, out, rank, processes, store.port, fault))
            for rank in range(processes)
        ]
        for process in attempt:
            process.start()
        return attempt

    def run_attempt(self, out: Path, processes: int, *, fault: Fault = NO_FAULT) -> set[int]:
        """The exit codes of an attempt whose processes end by themselves."""
        attempt = self.start(out, processes, fault=fault)
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
            for number in range(kills):
                if time.monotonic() > self.end:
                    break
                if number % 2:
                    self.kill_at_write(out, processes)
                else:
                    self.kill_at_random(out, processes, seconds)
                self.rng.choice(
                    (
                        self.damage,
                        self.fill_disk,
                        self.make_read_only,
                        self.change_corpus,
                        self.change_setting,
                        lambda *_: None,
                    )
                )(out, processes)
            assert self.run_attempt(out, processes) == {0}, f"{name} could not go on"
            assert_same(out, expected)
        self.figures[f"runs on {processes} equal to the undisturbed one"] += 1
        self.figures.update(figures)

    def kill_at_random(self, out: Path, processes: int, seconds: float) -> None:
        """Kill all processes of an attempt at a random moment, one of them a little earlier."""
        attempt = self.start(out, processes)
        time.sleep(self.rng.uniform(0, seconds))
        killed = self.rng.choice(attempt)
        for process in (killed, *(each for each in attempt if each is not killed)):
            process.kill()
        for process in attempt:
            process.join()
        self.figures["kills at random moments"] += 1

    def kill_at_write(self, out: Path, processes: int) -> None:
        """The first process kills itself when it writes a file; the others must then end by themselves."""
        delay = self.rng.choice((0.0, self.rng.uniform(0, 0.003)))
        codes = self.run_attempt(out, processes, fault=Fault(kill_at=self.rng.randrange(1, 90), delay=delay))
        assert codes <= {0, 1, -signal.SIGKILL}, f"a kill at a write ended with {codes}"
        self.figures["kills at a write"] += -signal.SIGKILL in codes

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
        codes = self.run_attempt(out, processes, fault=Fault(limit=self.rng.randrange(1_000, 200_000)))
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

    def make_read_only(self, out: Path, processes: int) -> None:
        """An attempt in a folder that cannot be written ends in a sentence, or had nothing left to write."""
        codes = self.run_attempt(out, processes, fault=Fault(read_only=True))
        expected = {0, REFUSED} if processes == 1 else {0, REFUSED, 1}  # of several one is refused first
        assert codes <= expected, f"a read-only folder ended with {codes}"
        self.figures["read-only folders"] += 1

    def change_setting(self, out: Path, processes: int) -> None:
        """A run with another learning rate than before is refused."""
        if (out / "run.json").exists():
            codes = self.run_attempt(out, processes, fault=Fault(changes={"lr": 0.5}))
            assert codes <= {REFUSED, 1}, f"a changed setting ended with {codes}"
            self.figures["changed settings refused"] += 1


def train_once(corpus: Path, out: Path, rank: int, processes: int, port: int, fault: Fault) -> None:
    """One process of an attempt; it exits with REFUSED for a Problem, and without a word."""
    import torch

    from noise2text.commands.train import train

    torch.set_num_threads(1)
    if processes > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    fault.arrange(out, rank)
    files: dict[str, Any] = {name: str(corpus / f"{name}.jsonl") for name in ("train", "valid")}
    try:
        changes = CHANGES | dict(fault.changes)
        train("difformer", out=out, preset="tiny", changes=changes, device="cpu", resume=True, **files)
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


def attack_training(
    folder: Path, *, seconds: float, seed: int, kills: int = 12, most_runs: int | None = None
) -> Counter[str]:
    """Attack runs on one and on two processes in turn until the time is over; returns the figures."""
    attack = TrainingAttack(folder, random.Random(seed), end=time.monotonic() + seconds)
    write_dates(attack.corpus, pairs=200, seed=0)
    undisturbed = {processes: attack.run_undisturbed(processes) for processes in (1, 2)}
    number = 0
    while time.monotonic() < attack.end and number != most_runs:
        processes = 1 + number % 2
        expected, duration = undisturbed[processes]
        attack.attack_run(f"run-{number}", expected, processes, duration / 2, kills)
        number += 1
    return attack.figures
