"""The numbers of a run over its steps: metrics.jsonl, one JSON object a line, and TensorBoard if wanted."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.core.files import write_whole
from noise2text.training.loop import Tick

__all__ = ["Metrics", "Unwritten"]


class Metrics:
    """Sums ticks on the device and writes their means when asked, so that no step waits for the host."""

    def __init__(self, run: Path, *, tensorboard: bool) -> None:
        self.path = run / "metrics.jsonl"
        self.board = _board(run) if tensorboard else None
        self._reset()
        self._bad: Tensor | None = None

    def _reset(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: Counter[str] = Counter()  # a term that is there for looking alone is not in every step
        self._rate = 0.0
        self._since = time.monotonic()

    def add(self, tick: Tick) -> None:
        """Take in one step."""
        values = {"loss": tick.loss, **tick.means, "gradient": tick.gradient, "tokens": tick.tokens}
        sums = {name: value.detach() + self._sums.pop(name, 0) for name, value in values.items()}
        self._sums = sums | self._sums  # in the newest step's order
        self._counts.update(values.keys())
        self._rate = tick.rate
        finite = torch.isfinite(tick.loss) & torch.isfinite(tick.gradient)
        before = torch.zeros_like(tick.loss) if self._bad is None else self._bad
        self._bad = torch.where(finite | (before > 0), before, tick.step)

    def first_bad_step(self) -> int:
        """The first step whose loss or gradient was not a finite number; 0 if there was none."""
        return 0 if self._bad is None else int(self._bad)

    def log(self, step: int) -> str:
        """Write the means over those steps since the last line that have them; returns them in short."""
        seconds = time.monotonic() - self._since
        sums = {name: value.item() for name, value in self._sums.items()}
        tokens_per_second = sums.pop("tokens") / max(seconds, 1e-9)
        means = {name: value / self._counts[name] for name, value in sums.items()}
        speed = {"rate": self._rate, "tokens_per_second": round(tokens_per_second)}
        self._write({"step": step, **means, **speed})
        self._reset()
        short = "  ".join(f"{name} {value:.3f}" for name, value in means.items() if name != "gradient")
        return f"{short}  {tokens_per_second:,.0f} tokens/s"

    def valid(self, step: int, scores: dict[str, float]) -> None:
        """Write a validation's scores."""
        self._write({"step": step, **{f"valid_{name}": score for name, score in scores.items()}})

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within, time does not count towards the training's speed."""
        started = time.monotonic()
        yield
        self._since += time.monotonic() - started

    def rewind(self, step: int) -> None:
        """Forget what was written after this step: it will be done again."""
        if self.path.exists():
            text = self.path.read_text("utf-8", errors="replace")  # a damaged line belongs to no step
            lines = [line for line in text.splitlines() if _step(line) <= step]
            write_whole(self.path, lambda path: path.write_text("".join(f"{line}\n" for line in lines)))

    def _write(self, record: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        if self.board is not None:
            for name, value in record.items():
                self.board.add_scalar(name, value, record["step"])
            self.board.flush()  # however the run ends, what it has logged is there


class Unwritten(Metrics):
    """Counts the same and writes nothing: for all processes but the first."""

    def __init__(self, run: Path) -> None:
        super().__init__(run, tensorboard=False)

    def rewind(self, step: int) -> None:
        pass

    def _write(self, record: dict[str, Any]) -> None:
        pass


def _step(line: str) -> float:
    """The step of a line; a line cut off by a kill belongs to none."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


def _board(run: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise Problem(
            "The setting tensorboard needs the package: pip install noise2text[tensorboard]."
        ) from error
    return SummaryWriter(str(run / "tensorboard"))
