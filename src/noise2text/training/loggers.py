"""Loggers: training curves in metrics.jsonl, and in TensorBoard, Weights & Biases or trackio.

Every run writes metrics.jsonl; each of the others is behind an extra of its name.

A killed run has logged some steps after its newest checkpoint, and repeats them when it is resumed.
metrics.jsonl and TensorBoard forget them. The other two cannot forget, so what they have is recorded in the
run's folder, and not sent again.
"""

from __future__ import annotations

import importlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem, suggest
from noise2text.core.files import explain_write_failures, write_atomically
from noise2text.core.json_files import read_json_object
from noise2text.training.callbacks import TrainingCallback, TrainingStart

__all__ = ["MetricsFile", "TensorBoardLogger", "TrackioLogger", "WandbLogger", "build_loggers"]


class MetricsFile(TrainingCallback):
    """Writes metrics.jsonl in the run's folder, one JSON object per line.

    A resumed run replaces the lines that it writes again.
    """

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


class TensorBoardLogger(TrainingCallback):
    """Writes the curves of a run for TensorBoard, in the folder `tensorboard` of the run.

    `noise2text train --logger tensorboard` uses it; look at the curves with `tensorboard --logdir runs`.

    >>> import noise2text
    >>> callbacks = [noise2text.TensorBoardLogger()]  # for noise2text.train(..., callbacks=callbacks)
    """

    def __init__(self) -> None:
        self._module = _import_logger("tensorboard", "torch.utils.tensorboard")

    def on_start(self, start: TrainingStart) -> None:
        folder = Path(start.out) / "tensorboard"
        purged = start.first_step if folder.exists() else None  # what comes after is written again
        self._writer = self._module.SummaryWriter(str(folder), purge_step=purged)

    def on_log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()  # a killed run keeps what it logged

    def on_validation(self, step: int, scores: Mapping[str, float]) -> None:
        self.on_log(step, {f"valid_{name}": score for name, score in scores.items()})

    def on_end(self, error: BaseException | None) -> None:
        if hasattr(self, "_writer"):
            self._writer.close()


class _AppendOnlyLogger(TrainingCallback):
    """A logger of a service that cannot take anything back, so nothing is sent to it twice."""

    name = ""

    def __init__(self, project: str = "noise2text", *, run_name: str | None = None) -> None:
        self._module = _import_logger(self.name, self.name)
        self._project, self._run_name, self._run = project, run_name, None

    def on_start(self, start: TrainingStart) -> None:
        out = Path(start.out)
        self._path = out / f"{self.name}.json"
        self._state: dict[str, Any] = {"id": uuid.uuid4().hex[:12], "log": -1, "validation": -1}
        if self._path.exists():
            self._state = _read_state(self._path)
        self._write_state()
        settings = {"recipe": start.recipe, "num_parameters": start.num_parameters, **asdict(start.config)}
        self._run = self._open(self._run_name or out.resolve().name, out, settings)

    def on_log(self, step: int, values: Mapping[str, float]) -> None:
        self._send("log", step, values)

    def on_validation(self, step: int, scores: Mapping[str, float]) -> None:
        self._send("validation", step, {f"valid_{name}": score for name, score in scores.items()})

    def _send(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        if step > self._state[kind]:
            self._state[kind] = step
            self._write_state()  # first, so that a run killed here does not send it again
            self._log(step, dict(values))

    def _write_state(self) -> None:
        text = json.dumps(self._state)
        write_atomically(self._path, lambda path: path.write_text(text, encoding="utf-8"))

    def _open(self, run_name: str, out: Path, settings: dict[str, Any]) -> Any:
        """Start the run of the service, or continue it."""
        raise NotImplementedError

    def _log(self, step: int, values: dict[str, float]) -> None:
        """Send values to the run of the service."""
        raise NotImplementedError


class WandbLogger(_AppendOnlyLogger):
    """Sends the curves of a run to Weights & Biases; a resumed run continues the same W&B run.

    `noise2text train --logger wandb` uses it. WANDB_MODE, WANDB_ENTITY and wandb's other variables work as
    usual: with WANDB_MODE=offline everything stays in the folder `wandb` of the run.

    Args:
        project: the name of the project.
        run_name: the name that W&B shows; by default that of the run's folder.

    >>> import noise2text
    >>> callbacks = [noise2text.WandbLogger("de-en")]  # for noise2text.train(..., callbacks=callbacks)
    """

    name = "wandb"

    def _open(self, run_name: str, out: Path, settings: dict[str, Any]) -> Any:
        try:
            run = self._module.init(
                project=self._project,
                name=run_name,
                id=self._state["id"],
                resume="allow",
                dir=str(out),
                config=settings,
            )
        except self._module.Error as error:
            sentence = str(error).strip().splitlines()[0].rstrip(".")
            raise Problem(
                f"Weights & Biases could not start ({sentence}): run `wandb login`, or set "
                f"WANDB_MODE=offline to keep the curves in {out / 'wandb'}."
            ) from error
        run.define_metric("step")
        run.define_metric("*", step_metric="step")  # W&B's own counter only counts the calls
        return run

    def _log(self, step: int, values: dict[str, float]) -> None:
        assert self._run is not None
        self._run.log({"step": step, **values})

    def on_end(self, error: BaseException | None) -> None:
        if self._run is not None:
            self._run.finish(exit_code=int(error is not None))


class TrackioLogger(_AppendOnlyLogger):
    """Writes the curves of a run for trackio, on this machine; look at them with `trackio show`.

    `noise2text train --logger trackio` uses it. A resumed run continues the same run of trackio. The variable
    TRACKIO_DIR says where they are kept.

    Args:
        project: the name of the project.
        run_name: the name that trackio shows; by default that of the run's folder and an id.

    >>> import noise2text
    >>> callbacks = [noise2text.TrackioLogger("de-en")]  # for noise2text.train(..., callbacks=callbacks)
    """

    name = "trackio"

    def _open(self, run_name: str, out: Path, settings: dict[str, Any]) -> Any:
        if self._run_name is None:
            run_name = f"{run_name}-{self._state['id']}"  # trackio knows a run by its name
        return self._module.init(
            project=self._project, name=run_name, resume="allow", config=settings, embed=False
        )

    def _log(self, step: int, values: dict[str, float]) -> None:
        self._module.log(values, step=step)

    def on_end(self, error: BaseException | None) -> None:
        if self._run is not None:
            self._module.finish()


def _read_state(path: Path) -> dict[str, Any]:
    """What a logger was told before the run was interrupted: its id, and the last step of each kind."""
    state = read_json_object(path)
    kinds = {name: type(state.get(name)) for name in ("id", "log", "validation")}
    if kinds != {"id": str, "log": int, "validation": int}:
        raise Problem(f"{path} is damaged: delete it, and the curves go on in a new run of the logger.")
    return state


LOGGERS: dict[str, type[TrainingCallback]] = {
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
    "trackio": TrackioLogger,
}


def build_loggers(names: str) -> list[TrainingCallback]:
    """The loggers with these names, which are separated by commas."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in LOGGERS:
            raise Problem(f"There is no logger {name!r}; {suggest(name, LOGGERS)}")
    return [LOGGERS[name]() for name in dict.fromkeys(wanted)]


def _import_logger(name: str, module: str) -> Any:
    """The module of a logger; a Problem if its package is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Problem(
            f"The logger {name} needs the package {name}: pip install 'noise2text[{name}]'."
        ) from error
