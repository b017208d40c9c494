"""The metrics of a run: metrics.jsonl, with one JSON object per line, and optionally TensorBoard."""

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
from noise2text.core.files import explain_write_failures, write_atomically
from noise2text.training.loop import StepReport

__all__ = ["MetricsLog", "SilentMetricsLog"]


class MetricsLog:
    """Sums the reports of steps on the device and writes their means, so that no step waits for the host."""

    def __init__(self, run: Path, *, tensorboard: bool) -> None:
        self.path = run / "metrics.jsonl"
        self.summary_writer = _open_tensorboard(run) if tensorboard else None
        self._reset()
        self._nonfinite_step: Tensor | None = None

    def _reset(self) -> None:
        self._sums: dict[str, Tensor | float] = {}
        self._counts: Counter[str] = Counter()  # terms that are only logged are not in every step
        self._lr = 0.0
        self._started = time.monotonic()

    def add(self, report: StepReport) -> None:
        """Add the report of a step."""
        values = {
            "loss": report.loss,
            **report.means,
            "gradient": report.grad_norm,
            "tokens": report.num_tokens,
        }
        sums: dict[str, Tensor | float] = {
            name: value.detach() + self._sums.pop(name, 0) for name, value in values.items()
        }
        self._sums = sums | self._sums  # in the newest step's order
        self._counts.update(values.keys())
        self._lr = report.lr
        finite = torch.isfinite(report.loss) & torch.isfinite(report.grad_norm)
        before = torch.zeros_like(report.loss) if self._nonfinite_step is None else self._nonfinite_step
        self._nonfinite_step = torch.where(finite | (before > 0), before, report.step)

    def first_nonfinite_step(self) -> int:
        """The first step whose loss or gradient was not a finite number; 0 if there was none."""
        return 0 if self._nonfinite_step is None else int(self._nonfinite_step)

    @property
    def unlogged(self) -> dict[str, list[float]]:
        """The sum and the number of steps of each term since the last line, for a checkpoint."""
        sums = {
            name: value.item() if isinstance(value, Tensor) else value for name, value in self._sums.items()
        }
        return {name: [value, self._counts[name]] for name, value in sums.items()}

    @unlogged.setter
    def unlogged(self, saved: dict[str, list[float]]) -> None:
        """Go on as the run did that saved these, so that its next line is the same."""
        self._sums = {name: value for name, (value, _) in saved.items()}
        self._counts = Counter({name: int(count) for name, (_, count) in saved.items()})

    def log(self, step: int) -> str:
        """Write each term's mean over the steps since the last line; returns them as a short text."""
        seconds = time.monotonic() - self._started
        sums = {name: float(value) for name, value in self._sums.items()}
        tokens_per_second = sums.pop("tokens") / max(seconds, 1e-9)
        means = {name: value / self._counts[name] for name, value in sums.items()}
        speed = {"rate": self._lr, "tokens_per_second": round(tokens_per_second)}
        self._write({"step": step, **means, **speed})
        self._reset()
        short = "  ".join(f"{name} {value:.3f}" for name, value in means.items() if name != "gradient")
        return f"{short}  {tokens_per_second:,.0f} tokens/s"

    def log_validation(self, step: int, scores: dict[str, float]) -> None:
        """Write the scores of a validation."""
        self._write({"step": step, **{f"valid_{name}": score for name, score in scores.items()}})

    @contextmanager
    def pause_clock(self) -> Iterator[None]:
        """Context manager: the time inside does not count towards the training speed."""
        started = time.monotonic()
        yield
        self._started += time.monotonic() - started

    def truncate_after(self, step: int) -> None:
        """Remove the lines after this step, which a resumed run writes again."""
        if self.path.exists():
            text = self.path.read_text("utf-8", errors="replace")  # a damaged line has no step
            lines = [line for line in text.splitlines() if _step_of_line(line) <= step]
            write_atomically(self.path, lambda path: path.write_text("".join(f"{line}\n" for line in lines)))

    def _write(self, record: dict[str, Any]) -> None:
        with explain_write_failures(self.path), self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        if self.summary_writer is not None:
            for name, value in record.items():
                self.summary_writer.add_scalar(name, value, record["step"])
            self.summary_writer.flush()  # a killed run keeps what it logged


class SilentMetricsLog(MetricsLog):
    """Computes the same and writes nothing, for all processes but the main one."""

    def __init__(self, run: Path) -> None:
        super().__init__(run, tensorboard=False)

    def truncate_after(self, step: int) -> None:
        pass

    def _write(self, record: dict[str, Any]) -> None:
        pass


def _step_of_line(line: str) -> float:
    """The step of a line; infinite for a damaged line."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


def _open_tensorboard(run: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise Problem(
            "The setting tensorboard needs the package: pip install noise2text[tensorboard]."
        ) from error
    return SummaryWriter(str(run / "tensorboard"))
