"""Following a training run: one small protocol for displays, loggers and users' own code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem, abbreviate

__all__ = ["Callbacks", "TrainingCallback", "TrainingStart", "require_callbacks"]


@dataclass(frozen=True)
class TrainingStart:
    """What is known of a run before its first step.

    Attributes:
        recipe: its name, such as difformer.
        config: all settings of the run.
        out: its folder.
        num_parameters: the size of the model.
        first_step: the step that comes next: 1 for a new run, more for a resumed one.
        last_step: the step that ends the run; 0 for a baseline, which takes no steps.

    >>> import noise2text
    >>> start = noise2text.TrainingStart("difformer", None, "runs/a", 1_000, first_step=501, last_step=3000)
    >>> start.last_step - start.first_step + 1
    2500
    """

    recipe: str
    config: Any
    out: Path
    num_parameters: int
    first_step: int
    last_step: int


class TrainingCallback:
    """The base class of what follows a training run; override the methods that you need.

    `noise2text.train(..., callbacks=[...])` calls them in the main process only, between two steps, in the
    order of the list. Time spent in them does not count towards the training speed. An exception ends the
    run, which can be resumed from its newest checkpoint. A resumed run repeats the steps after that
    checkpoint, and reports them again: `first_step` of `on_start` says from where.

    >>> import tempfile, noise2text
    >>> class PrintLoss(noise2text.TrainingCallback):
    ...     def on_log(self, step, values):
    ...         print("step", step, "has a loss:", values["loss"] > 0)
    ...     def on_end(self, error):
    ...         print("finished" if error is None else "interrupted")
    >>> pairs = [(f"{day} april 1957", f"1957-04-{day}") for day in range(10, 31)]
    >>> short = {"optim.steps": 2, "tokenizer": "characters", "noise_factor": 2.0, "validation_sentences": 2}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     where = {"out": f"{folder}/run", "preset": "tiny", "device": "cpu", "changes": short}
    ...     model = noise2text.train("difformer", train=pairs, callbacks=[PrintLoss()], **where)
    step 2 has a loss: True
    finished
    """

    def on_start(self, start: TrainingStart) -> None:
        """Called before the first step."""

    def on_log(self, step: int, values: Mapping[str, float]) -> None:
        """Called every `log_every` steps with the means since the last call.

        Args:
            step: the step that was just taken.
            values: `loss`, each of its terms, `gradient` (the norm), `rate` (the learning rate) and
                `tokens_per_second`.
        """

    def on_validation(self, step: int, scores: Mapping[str, float]) -> None:
        """Called after each validation with its scores, such as `loss` and `bleu`."""

    def on_checkpoint(self, step: int, folder: Path) -> None:
        """Called after each checkpoint with its folder, which is also a model folder."""

    def on_end(self, error: BaseException | None) -> None:
        """Called at the end with what interrupted the run, or with None if it took its last step."""


def require_callbacks(callbacks: Any) -> list[TrainingCallback]:
    """The callbacks as a list; a Problem for anything else, before a run starts."""
    try:
        found = list(callbacks)
    except TypeError:
        raise Problem(
            f"train takes a list of callbacks, not {abbreviate(callbacks)}: give [callback]."
        ) from None
    for each in found:
        if isinstance(each, type) or not all(hasattr(each, name) for name in _EVENTS):
            raise Problem(
                f"train takes callbacks such as noise2text.WandbLogger(), not {abbreviate(each)}: give an "
                "object of a class that extends noise2text.TrainingCallback."
            )
    return found


_EVENTS = ("on_start", "on_log", "on_validation", "on_checkpoint", "on_end")


class Callbacks(TrainingCallback):
    """Several callbacks as one, called in their order."""

    def __init__(self, callbacks: Iterable[TrainingCallback] = ()) -> None:
        self.callbacks = list(callbacks)

    @contextmanager
    def follow(self, start: TrainingStart) -> Iterator[None]:
        """Context manager: the run that `start` describes, with its start and its end."""
        try:
            self.on_start(start)
            yield
        except BaseException as error:
            self.on_end(error)
            raise
        self.on_end(None)

    def on_start(self, start: TrainingStart) -> None:
        for each in self.callbacks:
            each.on_start(start)

    def on_log(self, step: int, values: Mapping[str, float]) -> None:
        for each in self.callbacks:
            each.on_log(step, values)

    def on_validation(self, step: int, scores: Mapping[str, float]) -> None:
        for each in self.callbacks:
            each.on_validation(step, scores)

    def on_checkpoint(self, step: int, folder: Path) -> None:
        for each in self.callbacks:
            each.on_checkpoint(step, folder)

    def on_end(self, error: BaseException | None) -> None:
        for each in self.callbacks:
            each.on_end(error)
