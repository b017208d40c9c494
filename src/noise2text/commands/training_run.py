"""One training run: the loop, and what happens between two of its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from noise2text.commands.best_models import BestModels
from noise2text.commands.display import Display, ShowProgress
from noise2text.commands.run_card import write_run_card
from noise2text.commands.run_data import TrainingData
from noise2text.commands.run_setup import (
    mark_saved,
)
from noise2text.commands.validation import Validator
from noise2text.core.devices import autocast
from noise2text.core.errors import Problem, Stopped
from noise2text.core.host_memory import keep_freed_memory
from noise2text.core.signals import defer_signals
from noise2text.models import Model
from noise2text.models.accelerate import prepare_for_inference
from noise2text.models.folder import load, save
from noise2text.models.registry import Recipe
from noise2text.training import checkpoint
from noise2text.training.averaging import Ema
from noise2text.training.callbacks import Callbacks, TrainingCallback, TrainingStart
from noise2text.training.distributed import SingleProcess, TrainingStrategy, distribute
from noise2text.training.loggers import MetricsFile, build_loggers
from noise2text.training.loop import EagerPass, StepReport, StepSettings, TrainingPass, train_steps
from noise2text.training.lr_schedules import LR_SCHEDULES
from noise2text.training.micro_batches import MicroBatches
from noise2text.training.optimizer import build_adamw
from noise2text.training.process_group import ProcessGroup
from noise2text.training.running_means import RunningMeans

__all__ = ["TrainingRun"]

MIN_PARAMETERS_TO_COMPILE = 10_000_000
"""The number of parameters from which training on a GPU is compiled by default, which takes some seconds."""


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
        callbacks: Sequence[TrainingCallback] = (),
    ) -> None:
        self.recipe, self.config, self.data, self.out = recipe, config, data, out
        self.device, self.display, self.group = device, display, group
        if device.type == "cpu":
            keep_freed_memory()
        torch.manual_seed(config.run.seed)
        self.model: Model = recipe.build(config, data.tokenizer).to(device)
        self.num_parameters = sum(parameter.numel() for parameter in self.model.parameters())
        self._prepare_for_validation(self.model)
        self.resume_from = checkpoint.find_checkpoint(out)  # None for a new run
        if self.resume_from is None:
            recipe.initialize(config, self.model)
        else:
            saved = load(self.resume_from, device=device, precision="float32")
            self.model.load_state_dict(saved.state_dict())
        self.objective = recipe.objective(config, self.model)
        self.autocast = autocast(self.model.resolve_precision(config.run.precision), device)
        self.strategy: TrainingStrategy = SingleProcess(self.objective, self.model, group)
        if group.world_size > 1:
            self.strategy = distribute(self.strategy, sharded=config.run.sharded, build_copy=self._build_copy)
        self.optimizer = build_adamw(self.model, config.optim, device)
        self.ema = Ema(self.model, config.optim.ema_decay) if config.optim.ema_decay else None
        self.batches = MicroBatches(data.train, self.model.layout, config=config, device=device, group=group)
        self.means = RunningMeans()
        self.callbacks = Callbacks()  # the other processes report nothing
        if group.rank == 0:
            loggers = build_loggers(config.run.loggers)
            self.callbacks = Callbacks([MetricsFile(), ShowProgress(display), *loggers, *callbacks])
        self.best = BestModels(
            out, best_by=config.run.best_by, count=config.optim.average_best, write_model=self._write_model
        )

    def _prepare_for_validation(self, model: Model) -> None:
        """Make a model on a GPU ready to generate the texts of the validation."""
        if self.device.type == "cuda":
            prepare_for_inference(model, quantizable=None, precision="float32", device=self.device)

    def _build_copy(self) -> tuple[Model, Any]:
        """Another model of the same shape, and its objective."""
        model = self.recipe.build(self.config, self.data.tokenizer).to(self.device)
        self._prepare_for_validation(model)
        return model, self.recipe.objective(self.config, model)

    def train(self) -> None:
        """Train to the last step, from the newest checkpoint if there is one."""
        first = 1 if self.resume_from is None else 1 + self._restore(self.resume_from)
        last = self.config.optim.steps
        self._describe_run(first)
        start = TrainingStart(
            self.recipe.name, self.config, self.out, self.num_parameters, first_step=first, last_step=last
        )
        with self.callbacks.follow(start), defer_signals() as stop_requested:
            reports = train_steps(
                self.objective,
                self.optimizer,
                self.batches,
                first=first,
                last=last,
                settings=StepSettings(
                    peak_lr=self.config.optim.lr,
                    lr_schedule=LR_SCHEDULES[self.config.optim.lr_schedule](self.config.optim.warmup, last),
                    clip_norm=self.config.optim.clip_norm,
                    seed=self.config.run.seed,
                ),
                strategy=self.strategy,
                training_pass=self._build_pass(),
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
        self.means.add(report)
        is_last_step = step == config.optim.steps
        if self._is_logged(step):
            self._require_finite_loss()
            values = self.means.take()
            with self.means.pause_clock():
                self.callbacks.on_log(step, values)
        if step % config.run.validate_every == 0 or is_last_step:
            self._require_finite_loss()
            self._validate(step)
        is_stopping = self.group.any_process(stop_requested())
        if step % config.run.save_every == 0 or is_last_step or is_stopping:
            self._require_finite_loss()
            self._save(step)
        if is_stopping and not is_last_step:
            raise Stopped(f"Stopped after step {step:,}; continue with --resume.")

    def _is_logged(self, step: int) -> bool:
        """Whether this step is logged."""
        return step % self.config.run.log_every == 0 or step == self.config.optim.steps

    def _require_finite_loss(self) -> None:
        """Raise a problem if a loss was not a number."""
        bad = self.means.first_nonfinite_step()
        if bad:
            newest = checkpoint.find_checkpoint(self.out)
            state = f"{newest} is intact" if newest else "no checkpoint had been written yet"
            raise Problem(
                f"The loss was not a number at step {bad}; {state}: "
                f"try a lower lr, a longer warmup or precision=float32."
            )

    def _validate(self, step: int) -> None:
        with self.means.pause_clock(), self.strategy.gather_weights(self.ema):
            if self.strategy.unsharded is None:
                return
            model, objective = self.strategy.unsharded
            scores = Validator(objective, model, self.data, self.config, autocast=self.autocast)()
            self.callbacks.on_validation(step, scores)
            self.best.add(step, scores)

    def _write_final_model(self) -> None:
        """Replace the model in the run's folder by the average of the best ones, if the config says so."""
        if self.group.rank != 0:
            return
        self.best.average()
        self._write_card(self.best.best_step)
        summary = f"{self.best.best_by} {self.best.best_score:.3f} at step {self.best.best_step:,}"
        self.display.show_line(f"done: the best model ({summary}) is in {self.out}")

    def _write_card(self, step: int) -> None:
        """Write the model card, with the scores after this step."""
        best_by, average = self.best.best_by, len(self.best.best)
        training = f"The scores are those of the weights after step {step:,}, which have the best {best_by}."
        if average > 1:
            training += f" The model is the average of the best {average} validated weights."
        write_run_card(
            self.out,
            recipe=self.recipe.name,
            config=self.config,
            data=self.data,
            num_parameters=self.num_parameters,
            step=step,
            training=training,
        )

    def _save(self, step: int) -> None:
        with self.means.pause_clock(), self.strategy.gather_weights():
            folder = checkpoint.save(
                self.out,
                step=step,
                write_model=self._write_model,
                optimizer=self.optimizer,
                module=self.model,
                objective=self.objective,
                ema=self.ema,
                progress={"best": self.best.best, "unlogged": self.means.sums_and_counts},
                group=self.group,
            )
        if self.group.rank == 0:
            mark_saved(self.out)
            self.best.remove_unused()
            with self.means.pause_clock():
                self.callbacks.on_checkpoint(step, folder)

    def _restore(self, folder: Path) -> int:
        """Load the checkpoint in the folder; returns its step."""
        progress = checkpoint.restore(
            folder,
            optimizer=self.optimizer,
            module=self.model,
            objective=self.objective,
            ema=self.ema,
            group=self.group,
        )
        self.best.restore(progress["best"])
        for problem in self.best.leave_out_damaged():  # now, and not after the last step
            if self.group.rank == 0:
                self.display.show_line(f"{problem} The final average is taken without it.")
        self.means.sums_and_counts = progress.get("unlogged", {})
        if self.group.rank == 0:  # remove what a killed process left
            checkpoint.delete_discarded(self.out)
            self.best.remove_unused()
        return int(progress["step"])

    def _write_model(self, folder: Path) -> None:
        assert self.strategy.unsharded is not None, "only the first process writes"
        save(folder, self.strategy.unsharded[0], recipe=self.recipe.name, config=self.config)

    def _build_pass(self) -> TrainingPass:
        """The pass of a step: on a GPU as CUDA graphs, and fused where that is worth compiling.

        Several processes communicate within a pass, so they have no graphs.
        """
        eager_pass = EagerPass(self.strategy, self.optimizer, self.autocast)
        acceleration = self.config.run.acceleration if self.device.type == "cuda" else "none"
        if acceleration == "none" or not self.objective.graph_capturable:
            return eager_pass
        try:
            from noise2text.acceleration.cuda_graph_training import CudaGraphTrainingPass
            from noise2text.acceleration.fused import fuse
        except ImportError:
            return eager_pass
        is_large = self.num_parameters >= MIN_PARAMETERS_TO_COMPILE
        if acceleration == "compiled" or (acceleration == "auto" and is_large):
            fuse(self.objective)
        if self.group.world_size > 1:
            return eager_pass
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        return CudaGraphTrainingPass(eager_pass, self.objective, trained)

    def _describe_run(self, first: int) -> None:
        plan = self.batches.plan
        shapes = " ".join(f"{source}→{target}" for source, target in plan.shapes)
        several = self.group.world_size > 1
        devices = f"{self.group.world_size} × {self.device.type}" if several else str(self.device)
        self.display.show_line(
            f"{self.recipe.name}: {self.num_parameters:,} parameters on {devices}, "
            f"{len(self.data.train):,} pairs in {plan.batches_per_epoch:,} batches of shapes {shapes}"
        )
        if first > 1:
            self.display.show_line(f"resuming after step {first - 1:,}")
