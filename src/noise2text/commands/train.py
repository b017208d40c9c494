"""Train: pairs in, a model folder out.

The run's folder is itself the model: its root holds the best weights so far (or, at the end, the average of
the best few), `checkpoint-…` the point to resume from, `data` the tokens, metrics.jsonl the curves.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import torch

from noise2text.commands.average_checkpoints import average_folders
from noise2text.commands.display import Display, Quiet
from noise2text.commands.fit import learn_at_once
from noise2text.commands.metrics_log import Metrics, Unwritten
from noise2text.commands.run_data import Data
from noise2text.commands.run_setup import (
    as_before,
    begin,
    first_before_others,
    forgotten_if_refused,
    named,
    note_saved,
    refuse_another,
    settle,
)
from noise2text.commands.validation import Validation
from noise2text.core.devices import autocast, find_device
from noise2text.core.errors import Problem, Stopped
from noise2text.core.locks import alone_in
from noise2text.core.random import key, uniform
from noise2text.core.signals import stoppable
from noise2text.data.batching import FEW, MANY, Plan
from noise2text.data.layouts.canvas import Canvas
from noise2text.models import System
from noise2text.models.folder import load, save
from noise2text.models.registry import Recipe, find_recipe
from noise2text.training import checkpoint
from noise2text.training.averaging import Ema
from noise2text.training.distributed import Through, engage
from noise2text.training.loop import Tick, train_steps
from noise2text.training.lr_schedules import RATES
from noise2text.training.optimizer import adamw
from noise2text.training.process_group import Team
from noise2text.training.step_runner import Pass, Plain, Recorded, fuse

__all__ = ["train"]

WORTH_COMPILING = 10_000_000
"""Parameters from which a GPU's training is fused without being asked: compiling takes some seconds."""

_LAYOUT = 4  # what a key is for; the training loop has 1 to 3


def train(
    recipe: str,
    *,
    train: str,
    valid: str,
    out: str | Path,
    preset: str | None = None,
    config: str | Path | None = None,
    changes: Mapping[str, Any] | None = None,
    resume: bool = False,
    skip_bad: bool = False,
    device: str | None = None,
    display: Display | None = None,
) -> System:
    """Train a recipe on pairs and return the best model; what `noise2text train` does."""
    if train == valid == "-":
        raise Problem("Standard input can be the training pairs or the validation pairs, not both.")
    team = Team.here()
    out, display = Path(out), (display if team.is_first else None) or Quiet()
    place = find_device(team.device(device))
    found = find_recipe(recipe)
    settings = settle(found, preset, config, changes)
    files = {"train": train, "valid": valid}
    with team.meeting(place), ExitStack() as work:
        with first_before_others(team, out):
            if resume and not out.exists():
                display.say(f"There is no run in {out} to go on with: this is a new one.")
            if team.is_first:
                work.enter_context(alone_in(out))
            if resume:
                settings = as_before(out, found, settings, explicit=named(config, changes), files=files)
            elif team.is_first:
                refuse_another(out)
            settings, data = begin(found, settings, files, out, skip_bad=skip_bad, display=display, team=team)
        if found.fit is None:
            with forgotten_if_refused(out, team=team):
                run = Run(found, settings, data, out, place, display, team=team)
            run.go()
        elif team.is_first:
            learn_at_once(found, found.fit, settings, data, out, display)
        team.wait()
        return load(out, device=place)


class Run:
    """One training run: the parts, and what happens between two steps."""

    def __init__(
        self,
        recipe: Recipe,
        settings: Any,
        data: Data,
        out: Path,
        device: torch.device,
        display: Display,
        *,
        team: Team = Team(),
    ) -> None:
        self.recipe, self.settings, self.data, self.out = recipe, settings, data, out
        self.device, self.display, self.team = device, display, team
        torch.manual_seed(settings.seed)
        self.system: System = recipe.build(settings, data.tokenizer).to(device)
        self.point = checkpoint.latest(out)  # where the run goes on
        self._start()
        self.objective = recipe.objective(settings, self.system)
        self.engine = engage(self.objective, self.system, team, sharded=settings.sharded, twin=self._twin)
        self.optimiser = adamw(self.system, settings, device)
        self.ema = Ema(self.system, settings.ema) if settings.ema else None
        lengths = data.train.lengths
        shapes = self.system.layout.shapes(lengths, rungs=FEW if device.type == "cuda" else MANY)
        self.plan = Plan(lengths, tokens=settings.tokens, seed=settings.seed, shapes=shapes)
        team.share(self.plan.fewest)  # what is too small is told now, not when its turn comes
        self.metrics = Metrics(out, tensorboard=settings.tensorboard) if team.is_first else Unwritten(out)
        self.best: list[tuple[float, float, int]] = []  # (goodness, loss, step), best first

    def _start(self) -> None:
        """Give the system the weights of the checkpoint, or those that its recipe starts from."""
        if self.point is None:
            self.recipe.start(self.settings, self.system)
        else:
            saved = load(self.point, device=self.device, precision="float32")
            self.system.load_state_dict(saved.state_dict())

    def _twin(self) -> tuple[System, Any]:
        """Another system of the same shape, and its objective."""
        system = self.recipe.build(self.settings, self.data.tokenizer).to(self.device)
        return system, self.recipe.objective(self.settings, system)

    def go(self) -> None:
        """Train to the last step, from the newest checkpoint if there is one."""
        first = self._restore() + 1
        last = self.settings.steps
        self._introduce(first)
        self.display.start(last)
        with stoppable() as stop:
            ticks = train_steps(
                self.objective,
                self.optimiser,
                self._feed,
                first=first,
                last=last,
                peak=self.settings.learning_rate,
                rate=RATES[self.settings.decay](self.settings.warmup, last),
                clip=self.settings.clip,
                seed=self.settings.seed,
                run=self._pass(),
                engine=self.engine,
                looked=self._logs,
            )
            for tick in ticks:
                self._after(tick, stop)
        self._finish()

    def _after(self, tick: Tick, stop: Callable[[], bool]) -> None:
        """Average, log, validate, save, stop: whatever is due after this step."""
        settings, step = self.settings, tick.step
        if self.ema:
            self.ema.update()
        self.metrics.add(tick)
        ended = step == settings.steps
        if self._logs(step):
            self._check()
            self.display.progress(step, self.metrics.log(step))
        if step % settings.validate_every == 0 or ended:
            self._check()
            self._validate(step)
        stopping = self.team.any(stop())
        if step % settings.save_every == 0 or ended or stopping:
            self._check()
            self._save(step)
        if stopping and not ended:
            raise Stopped(f"Stopped after step {step:,}; --resume goes on from there.")

    def _logs(self, step: int) -> bool:
        """Whether a line is logged after this step."""
        return step % self.settings.log_every == 0 or step == self.settings.steps

    def _check(self) -> None:
        """Refuse to go on, or to save, once a loss was not a number."""
        bad = self.metrics.first_bad_step()
        if bad:
            kept = checkpoint.latest(self.out)
            raise Problem(
                f"The loss was not a number at step {bad}; "
                f"{f'{kept} is intact' if kept else 'no checkpoint had been written yet'}: "
                f"try a lower learning_rate, a longer warmup or precision=float32."
            )

    def _validate(self, step: int) -> None:
        with self.metrics.paused(), self.engine.whole(self.ema):
            if self.engine.shown is None:
                return
            system, objective = self.engine.shown
            scores = Validation(objective, system, self.data, self.settings, autocast=self._autocast)()
            self.metrics.valid(step, scores)
            self.display.say(
                f"step {step:,}: valid " + "  ".join(f"{name} {score:.3f}" for name, score in scores.items())
            )
            goodness = scores["bleu"] if self.settings.best_by == "bleu" else -scores["loss"]
            if not math.isfinite(goodness):
                return
            seen = [*self.best, (goodness, scores["loss"], step)]
            # Where all are equally good, such as single words by BLEU, the loss decides.
            self.best = sorted(seen, key=lambda each: (-each[0], each[1], each[2]))[: self.settings.average]
            if self.best[0][-1] == step:
                self._write_model(self.out)
            if self.settings.average > 1 and step in self._best_steps():
                self._write_model(self._kept(step))

    def _finish(self) -> None:
        """Make the root the average of the best models, where that was asked for."""
        if not self.team.is_first:
            return
        if self.settings.average > 1 and self.best:
            average_folders(list(map(self._kept, self._best_steps())), self.out)
        goodness, _, step = self.best[0] if self.best else (math.nan, math.nan, 0)
        shown = f"{self.settings.best_by} {abs(goodness):.3f} at step {step:,}"
        self.display.say(f"done: the best model ({shown}) is {self.out}")

    def _save(self, step: int) -> None:
        with self.metrics.paused(), self.engine.whole():
            checkpoint.save(
                self.out,
                step=step,
                write_model=self._write_model,
                optimiser=self.optimiser,
                module=self.system,
                objective=self.objective,
                ema=self.ema,
                facts={"best": self.best},
                team=self.team,
            )
        if self.team.is_first:
            note_saved(self.out)
            self._forget_worse()

    def _forget_worse(self) -> None:
        """Remove models that are no longer to be averaged; not before a checkpoint says so, too."""
        wanted = set(map(self._kept, self._best_steps()))
        for folder in (self.out / "kept").glob("*"):
            if folder not in wanted:
                shutil.rmtree(folder, ignore_errors=True)

    def _best_steps(self) -> list[int]:
        return [step for *_, step in self.best]

    def _kept(self, step: int) -> Path:
        """The folder of a model that will be averaged."""
        return self.out / "kept" / f"{step:08d}"

    def _restore(self) -> int:
        """Go back to the newest checkpoint; returns its step, 0 without one."""
        if self.point is None:
            self.metrics.rewind(0)
            return 0
        facts = checkpoint.restore(
            self.point,
            optimiser=self.optimiser,
            module=self.system,
            objective=self.objective,
            ema=self.ema,
            team=self.team,
        )
        self.best = [(goodness, *(loss or [math.inf]), step) for goodness, *loss, step in facts["best"]]
        self.metrics.rewind(facts["step"])
        return int(facts["step"])

    def _write_model(self, folder: Path) -> None:
        assert self.engine.shown is not None, "only the first process writes"
        save(folder, self.engine.shown[0], recipe=self.recipe.name, settings=self.settings)

    def _feed(self, step: int) -> list[Canvas]:
        """The micro-batches of a step, this process's share of each."""
        first = (step - 1) * self.settings.accumulate
        layout, row, canvases = self.system.layout, 0, []
        for batch in (self.plan.batch(first + i) for i in range(self.settings.accumulate)):
            share = self.team.share(len(batch.pairs))
            canvas = layout.canvas(*self.data.train.pairs(batch.pairs[share]), shape=batch.shape)
            keys = key(self.settings.seed, _LAYOUT, step, torch.arange(row, row + len(batch.pairs))[share])
            canvases.append(layout.vary(canvas, uniform(keys)).to(self.device))
            row += len(batch.pairs)
        return canvases

    def _pass(self) -> Pass:
        """How a micro-batch is passed: on a GPU recorded and, for what is worth compiling, fused.

        What several processes do is not recorded: they talk to each other in between.
        """
        alone, wish = self.team.is_alone, self.settings.acceleration
        plain = Plain(self._autocast) if alone else Through(self._autocast, self.engine)
        if wish == "none" or self.device.type != "cuda" or not self.objective.recordable:
            return plain
        if wish == "compiled" or (wish == "auto" and _size(self.system) >= WORTH_COMPILING):
            fuse(self.objective)
        return Recorded(plain) if alone else plain

    def _autocast(self) -> AbstractContextManager[Any]:
        return autocast(self.system.precision(self.settings.precision), self.device)

    def _introduce(self, first: int) -> None:
        shapes = " ".join(f"{source}→{target}" for source, target in self.plan.shapes)
        self.display.say(
            f"{self.recipe.name}: {_size(self.system):,} parameters on {self._where()}, "
            f"{len(self.data.train):,} pairs in {self.plan.batches_per_epoch:,} batches of shapes {shapes}"
        )
        if first > 1:
            self.display.say(f"resuming after step {first - 1:,}")

    def _where(self) -> str:
        return str(self.device) if self.team.is_alone else f"{self.team.world} × {self.device.type}"


def _size(system: System) -> int:
    return sum(parameter.numel() for parameter in system.parameters())
