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

from noise2text.commands.average_checkpoints import average_models
from noise2text.commands.display import Display, SilentDisplay
from noise2text.commands.fit import fit_baseline
from noise2text.commands.metrics_log import MetricsLog, SilentMetricsLog
from noise2text.commands.run_data import TrainingData
from noise2text.commands.run_setup import (
    build_config,
    discard_on_problem,
    main_process_first,
    mark_saved,
    prepare_run,
    require_no_run,
    resume_config,
)
from noise2text.commands.validation import Validator
from noise2text.core.devices import autocast, find_device
from noise2text.core.errors import Problem, Stopped
from noise2text.core.locks import lock_folder
from noise2text.core.random import make_key, uniform
from noise2text.core.signals import defer_signals
from noise2text.data.batching import FEW_BUCKETS, MANY_BUCKETS, BatchPlan
from noise2text.data.layouts.base import Canvas
from noise2text.models import Model
from noise2text.models.accelerate import prepare_for_inference
from noise2text.models.folder import load, save
from noise2text.models.registry import Recipe, find_recipe
from noise2text.training import checkpoint
from noise2text.training.averaging import Ema
from noise2text.training.distributed import distribute
from noise2text.training.loop import GraphedPass, StepReport, train_steps
from noise2text.training.lr_schedules import LR_SCHEDULES
from noise2text.training.optimizer import build_adamw
from noise2text.training.process_group import ProcessGroup

__all__ = ["train"]

MIN_PARAMETERS_TO_COMPILE = 10_000_000
"""The number of parameters from which training on a GPU is compiled by default, which takes some seconds."""

_LAYOUT = 4  # the purpose of a key; the training loop has 1 to 3


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
) -> Model:
    """Train a recipe on pairs of texts and return the best model, as `noise2text train` does.

    Args:
        recipe: its name, such as difformer.
        train: the training pairs: a file (docs/your_own_data.md lists the formats), or a folder that
            `noise2text prepare` wrote.
        valid: the same for the pairs that pick the best model.
        out: the folder of the run, which is also the model folder.
        preset: one of the recipe's presets; by default that of its paper.
        config: a YAML file of settings, such as `noise2text config` prints.
        changes: settings by name, such as `{"optim.steps": 3000, "lr": 1e-3}`; they come last.
        resume: continue from the newest checkpoint in `out`.
        skip_bad: skip lines that are no pairs, instead of refusing the file.
        device: cpu, cuda or cuda:1; by default a GPU if there is one.
        display: where progress is shown; by default nowhere.

    Returns:
        The `Model` in `out`, ready to generate.

    >>> import tempfile, noise2text
    >>> from pathlib import Path
    >>> from noise2text.data.dates import write_dates
    >>> short = {"optim.steps": 2, "tokenizer": "characters", "noise_factor": 2.0, "validation_sentences": 2}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_dates(Path(folder), pairs=100, seed=0)
    ...     files = {name: f"{folder}/{name}.jsonl" for name in ("train", "valid")}
    ...     where = {"out": f"{folder}/run", "device": "cpu"}
    ...     model = noise2text.train("difformer", **files, **where, preset="tiny", changes=short)
    >>> len(model.generate(["7 april 1957"]).texts)
    1
    """
    if train == valid == "-":
        raise Problem("Standard input can be the training pairs or the validation pairs, not both.")
    group = ProcessGroup.from_environment()
    out, display = Path(out), (display if group.is_main_process else None) or SilentDisplay()
    chosen_device = find_device(group.device(device))
    chosen_recipe = find_recipe(recipe)
    training_config = build_config(chosen_recipe, preset, config, changes)
    files = {"train": train, "valid": valid}
    with group.connect(chosen_device), ExitStack() as work:
        with main_process_first(group, out):
            if resume and not out.exists():
                display.show_line(f"There is no run in {out} to go on with: this is a new one.")
            if group.is_main_process:
                work.enter_context(lock_folder(out))
            if resume:
                training_config = resume_config(
                    out,
                    chosen_recipe,
                    training_config,
                    config=config,
                    changes=changes,
                    files=files,
                )
            elif group.is_main_process:
                require_no_run(out)
            training_config, data = prepare_run(
                chosen_recipe, training_config, files, out, skip_bad=skip_bad, display=display, group=group
            )
        if chosen_recipe.fit is None:
            with discard_on_problem(out, group=group):
                run = TrainingRun(
                    chosen_recipe, training_config, data, out, chosen_device, display, group=group
                )
            run.train()
        elif group.is_main_process:
            fit_baseline(chosen_recipe, chosen_recipe.fit, training_config, data, out, display)
        group.barrier()
        return load(out, device=chosen_device)


class TrainingRun:
    """One training run: its parts, and what happens between two steps."""

    def __init__(
        self,
        recipe: Recipe,
        config: Any,
        data: TrainingData,
        out: Path,
        device: torch.device,
        display: Display,
        *,
        group: ProcessGroup = ProcessGroup(),
    ) -> None:
        self.recipe, self.config, self.data, self.out = recipe, config, data, out
        self.device, self.display, self.group = device, display, group
        torch.manual_seed(config.run.seed)
        self.model: Model = recipe.build(config, data.tokenizer).to(device)
        prepare_for_inference(self.model, None, "float32", device)  # for the texts of the validation
        self.resume_from = checkpoint.find_checkpoint(out)  # None for a new run
        self._load_initial_weights()
        self.objective = recipe.objective(config, self.model)
        self.strategy = distribute(
            self.objective, self.model, group, sharded=config.run.sharded, build_copy=self._build_copy
        )
        self.optimizer = build_adamw(self.model, config.optim, device)
        self.ema = Ema(self.model, config.optim.ema_decay) if config.optim.ema_decay else None
        lengths = data.train.lengths
        shapes = self.model.layout.batch_shapes(
            lengths, max_buckets=FEW_BUCKETS if device.type == "cuda" else MANY_BUCKETS
        )
        self.plan = BatchPlan(
            lengths, max_tokens=config.optim.max_tokens, seed=config.run.seed, shapes=shapes
        )
        group.slice_rows(self.plan.min_batch_size)  # refuses a batch that is too small at once
        self.metrics = (
            MetricsLog(out, tensorboard=config.run.tensorboard)
            if group.is_main_process
            else SilentMetricsLog(out)
        )
        self.best: list[tuple[float, float, int]] = []  # (score, loss, step), best first

    def _load_initial_weights(self) -> None:
        """Give the model the weights of the checkpoint, or those that its recipe starts from."""
        if self.resume_from is None:
            self.recipe.initialize(self.config, self.model)
        else:
            saved = load(self.resume_from, device=self.device, precision="float32")
            self.model.load_state_dict(saved.state_dict())

    def _build_copy(self) -> tuple[Model, Any]:
        """Another model of the same shape, and its objective."""
        model = self.recipe.build(self.config, self.data.tokenizer).to(self.device)
        prepare_for_inference(model, None, "float32", self.device)
        return model, self.recipe.objective(self.config, model)

    def train(self) -> None:
        """Train to the last step, from the newest checkpoint if there is one."""
        first = self._restore() + 1
        last = self.config.optim.steps
        self._describe_run(first)
        self.display.start(last)
        with defer_signals() as stop_requested:
            reports = train_steps(
                self.objective,
                self.optimizer,
                self._batches,
                first=first,
                last=last,
                peak_lr=self.config.optim.lr,
                lr_schedule=LR_SCHEDULES[self.config.optim.lr_schedule](self.config.optim.warmup, last),
                clip_norm=self.config.optim.clip_norm,
                seed=self.config.run.seed,
                autocast=self._autocast,
                strategy=self.strategy,
                graphed=self._accelerate(),
                is_logged=self._is_logged,
            )
            for report in reports:
                self._after_step(report, stop_requested)
        self._write_final_model()

    def _after_step(self, report: StepReport, stop_requested: Callable[[], bool]) -> None:
        """Average, log, validate, save or stop, whichever is due after this step."""
        config, step = self.config, report.step
        if self.ema:
            self.ema.update()
        self.metrics.add(report)
        is_last_step = step == config.optim.steps
        if self._is_logged(step):
            self._require_finite_loss()
            self.display.progress(step, self.metrics.log(step))
        if step % config.run.validate_every == 0 or is_last_step:
            self._require_finite_loss()
            self._validate(step)
        is_stopping = self.group.any_process(stop_requested())
        if step % config.run.save_every == 0 or is_last_step or is_stopping:
            self._require_finite_loss()
            self._save(step)
        if is_stopping and not is_last_step:
            raise Stopped(f"Stopped after step {step:,}; --resume goes on from there.")

    def _is_logged(self, step: int) -> bool:
        """Whether this step is logged."""
        return step % self.config.run.log_every == 0 or step == self.config.optim.steps

    def _require_finite_loss(self) -> None:
        """Raise a problem if a loss was not a number."""
        bad = self.metrics.first_nonfinite_step()
        if bad:
            newest = checkpoint.find_checkpoint(self.out)
            state = f"{newest} is intact" if newest else "no checkpoint had been written yet"
            raise Problem(
                f"The loss was not a number at step {bad}; {state}: "
                f"try a lower lr, a longer warmup or precision=float32."
            )

    def _validate(self, step: int) -> None:
        with self.metrics.pause_clock(), self.strategy.gather_weights(self.ema):
            if self.strategy.unsharded is None:
                return
            model, objective = self.strategy.unsharded
            scores = Validator(objective, model, self.data, self.config, autocast=self._autocast)()
            self.metrics.log_validation(step, scores)
            self.display.show_line(
                f"step {step:,}: valid " + "  ".join(f"{name} {score:.3f}" for name, score in scores.items())
            )
            score = scores["bleu"] if self.config.run.best_by == "bleu" else -scores["loss"]
            if not math.isfinite(score):
                return
            scored = [*self.best, (score, scores["loss"], step)]
            # If scores are equal, as BLEU is for single words, the loss decides.
            self.best = sorted(scored, key=lambda each: (-each[0], each[1], each[2]))[
                : self.config.optim.average_best
            ]
            if self.best[0][-1] == step:
                self._write_model(self.out)
            if self.config.optim.average_best > 1 and step in self._best_steps():
                self._write_model(self._kept_folder(step))

    def _write_final_model(self) -> None:
        """Replace the model in the run's folder by the average of the best ones, if the config says so."""
        if not self.group.is_main_process:
            return
        if self.config.optim.average_best > 1 and self.best:
            average_models(list(map(self._kept_folder, self._best_steps())), self.out)
        score, _, step = self.best[0] if self.best else (math.nan, math.nan, 0)
        summary = f"{self.config.run.best_by} {abs(score):.3f} at step {step:,}"
        self.display.show_line(f"done: the best model ({summary}) is {self.out}")

    def _save(self, step: int) -> None:
        with self.metrics.pause_clock(), self.strategy.gather_weights():
            checkpoint.save(
                self.out,
                step=step,
                write_model=self._write_model,
                optimizer=self.optimizer,
                module=self.model,
                objective=self.objective,
                ema=self.ema,
                progress={"best": self.best},
                group=self.group,
            )
        if self.group.is_main_process:
            mark_saved(self.out)
            self._remove_worse()

    def _remove_worse(self) -> None:
        """Remove models that will not be averaged; only after a checkpoint that does not list them."""
        wanted = set(map(self._kept_folder, self._best_steps()))
        for folder in (self.out / "kept").glob("*"):
            if folder not in wanted:
                shutil.rmtree(folder, ignore_errors=True)

    def _best_steps(self) -> list[int]:
        return [step for *_, step in self.best]

    def _kept_folder(self, step: int) -> Path:
        """The folder of a model that will be averaged."""
        return self.out / "kept" / f"{step:08d}"

    def _restore(self) -> int:
        """Load the newest checkpoint; returns its step, 0 without one."""
        if self.resume_from is None:
            self.metrics.truncate_after(0)
            return 0
        facts = checkpoint.restore(
            self.resume_from,
            optimizer=self.optimizer,
            module=self.model,
            objective=self.objective,
            ema=self.ema,
            group=self.group,
        )
        self.best = [(score, *(loss or [math.inf]), step) for score, *loss, step in facts["best"]]
        self.metrics.truncate_after(facts["step"])
        return int(facts["step"])

    def _write_model(self, folder: Path) -> None:
        assert self.strategy.unsharded is not None, "only the first process writes"
        save(folder, self.strategy.unsharded[0], recipe=self.recipe.name, config=self.config)

    def _batches(self, step: int) -> list[Canvas]:
        """This process's share of each micro-batch of a step."""
        first = (step - 1) * self.config.optim.accumulate
        layout, row, canvases = self.model.layout, 0, []
        for batch in (self.plan.batch(first + i) for i in range(self.config.optim.accumulate)):
            own_rows = self.group.slice_rows(len(batch.pairs))
            canvas = layout.make_canvas(*self.data.train.get_pairs(batch.pairs[own_rows]), shape=batch.shape)
            keys = make_key(
                self.config.run.seed, _LAYOUT, step, torch.arange(row, row + len(batch.pairs))[own_rows]
            )
            canvases.append(layout.randomise(canvas, uniform(keys)).to(self.device))
            row += len(batch.pairs)
        return canvases

    def _accelerate(self) -> GraphedPass | None:
        """The CUDA graphs of a run on a GPU, whose operations are fused where that is worth compiling.

        Several processes communicate within a pass, so they have no graphs.
        """
        acceleration = self.config.run.acceleration
        if acceleration == "none" or self.device.type != "cuda" or not self.objective.graph_capturable:
            return None
        try:
            from noise2text.acceleration.fused import fuse
            from noise2text.acceleration.graphed_training import GraphedBackward
        except ImportError:
            return None
        is_large = _count_parameters(self.model) >= MIN_PARAMETERS_TO_COMPILE
        if acceleration == "compiled" or (acceleration == "auto" and is_large):
            fuse(self.objective)
        if not self.group.is_single_process:
            return None
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        return GraphedBackward(trained, self._autocast)

    def _autocast(self) -> AbstractContextManager[Any]:
        return autocast(self.model.resolve_precision(self.config.run.precision), self.device)

    def _describe_run(self, first: int) -> None:
        shapes = " ".join(f"{source}→{target}" for source, target in self.plan.shapes)
        parameters = _count_parameters(self.model)
        self.display.show_line(
            f"{self.recipe.name}: {parameters:,} parameters on {self._describe_devices()}, "
            f"{len(self.data.train):,} pairs in {self.plan.batches_per_epoch:,} batches of shapes {shapes}"
        )
        if first > 1:
            self.display.show_line(f"resuming after step {first - 1:,}")

    def _describe_devices(self) -> str:
        return (
            str(self.device)
            if self.group.is_single_process
            else f"{self.group.world_size} × {self.device.type}"
        )


def _count_parameters(model: Model) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
