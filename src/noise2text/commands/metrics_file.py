"""metrics.jsonl: what a run has logged, with one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from noise2text.core.files import explain_write_failures, write_atomically
from noise2text.training.callbacks import TrainingCallback, TrainingStart

__all__ = ["MetricsFile"]


class MetricsFile(TrainingCallback):
    """Writes metrics.jsonl in the run's folder; a resumed run replaces the lines that it writes again."""

    def on_start(self, start: TrainingStart) -> None:
        self.path = Path(start.out) / "metrics.jsonl"
        if self.path.exists():
            text = self.path.read_text("utf-8", errors="replace")  # a damaged line has no step
            lines = [line for line in text.splitlines() if _step_of_line(line) < start.first_step]
            write_atomically(
                self.path, lambda path: path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
            )

    def on_log(self, step: int, values: Mapping[str, float]) -> None:
        with explain_write_failures(self.path), self.path.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")

    def on_validation(self, step: int, scores: Mapping[str, float]) -> None:
        self.on_log(step, {f"valid_{name}": score for name, score in scores.items()})


def _step_of_line(line: str) -> float:
    """The step of a line; infinite for a damaged line."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return float("inf")
