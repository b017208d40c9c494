"""The means of what training steps report, summed on the device so that no step waits for the host."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from noise2text.training.loop import StepReport

__all__ = ["RunningMeans"]


class RunningMeans:
    """The mean of each value over the steps since `take` was last called, and the training speed."""

    def __init__(self) -> None:
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
    def sums_and_counts(self) -> dict[str, list[float]]:
        """The sum and the number of steps of each value since `take`, for a checkpoint."""
        sums = {
            name: value.item() if isinstance(value, Tensor) else value for name, value in self._sums.items()
        }
        return {name: [value, self._counts[name]] for name, value in sums.items()}

    @sums_and_counts.setter
    def sums_and_counts(self, saved: dict[str, list[float]]) -> None:
        """Go on as the run did that saved these, so that its next means are the same."""
        self._sums = {name: value for name, (value, _) in saved.items()}
        self._counts = Counter({name: int(count) for name, (_, count) in saved.items()})

    def take(self) -> dict[str, float]:
        """The means since the last call, with `rate` and `tokens_per_second`; starts new ones."""
        seconds = time.monotonic() - self._started
        sums = {name: float(value) for name, value in self._sums.items()}
        tokens_per_second = sums.pop("tokens") / max(seconds, 1e-9)
        means = {name: value / self._counts[name] for name, value in sums.items()}
        means |= {"rate": self._lr, "tokens_per_second": round(tokens_per_second)}
        self._reset()
        return means

    @contextmanager
    def pause_clock(self) -> Iterator[None]:
        """Context manager: the time inside does not count towards the training speed."""
        started = time.monotonic()
        yield
        self._started += time.monotonic() - started
