"""Train: pairs in, a model folder out.

The run's folder is itself the model: its root holds the best weights so far (or, at the end, the average of
the best few), `checkpoint-…` the point to resume from, `data` the tokens, metrics.jsonl the curves.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch

from noise2text.commands.average_checkpoints import average_models
from noise2text.commands.display import Display, SilentDisplay
from noise2text.commands.fit import fit_baseline
from noise2text.commands.metrics_log import MetricsLog, SilentMetricsLog
from noise2text.commands.run_card import write_run_card
from noise2text.commands.run_corpora import Corpora
from noise2text.commands.run_data import TrainingData
from noise2text.commands.run_setup import (
    change_config,
    check_corpora,
    discard_damaged_checkpoints,
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
from noise2text.core.random import KeyPurpose, make_key, uniform
from noise2text.core.signals import defer_signals
from noise2text.data.batching import FEW_BUCKETS, MANY_BUCKETS, BatchPlan
from noise2text.data.layouts.base import Canvas
from noise2text.models import Model
from noise2text.models.accelerate import prepare_for_inference
from noise2text.models.folder import load, save
from noise2text.models.registry import Recipe, find_recipe
from noise2text.training import checkpoint
from noise2text.training.averaging import Ema
from noise2text.training.distributed import SingleProcess, distribute
from noise2text.training.loop import StepReport, TrainingPass, train_steps
from noise2text.training.lr_schedules import LR_SCHEDULES
from noise2text.training.optimizer import build_adamw
from noise2text.training.process_group import ProcessGroup

__all__ = ["train"]

MIN_PARAMETERS_TO_COMPILE = 10_000_000
"""The number of parameters from which training on a GPU is compiled by default, which takes some seconds."""


def train(
    recipe: str,
    *,
    train: str | Path | Iterable[Any],
    valid: str | Path | Iterable[Any] | None = None,
    out: str | Path,
    fields: tuple[str, str] | None = None,
    preset: str | None = None,
    config: str | Path | None = None,
    changes: Mapping[str, Any] | None = None,
    resume: bool = False,
    allow_changes: bool = False,
    skip_bad: bool = False,
    device: str | None = None,
    display: Display | None = None,
) -> Model:
    """Train a recipe on pairs of texts and return the best model, as `noise2text train` does.

    Args:
        recipe: its name, such as difformer.
        train: the training pairs: a file (docs/guides/own_data.md lists the formats), a folder that
            `noise2text prepare` wrote, or rows: a list of (source, target) or of dicts, a pandas DataFrame or
            a Hugging Face dataset.
        valid: the same for the pairs that pick the best model. By default 5 % of the training pairs, at most
            1,000, are set aside for it, chosen by their sources and the setting `seed`.
        out: the folder of the run, which is also the model folder.
        fields: the names of source and target in rows that are dicts, if they are not "src" and "trg".
        preset: one of the recipe's presets; by default that of its paper.
        config: a YAML file of settings, such as `noise2text config` prints.
        changes: settings by name, such as `{"optim.steps": 3000, "lr": 1e-3}`; they come last.
        resume: continue from the newest checkpoint in `out` that is as it was saved.
        allow_changes: resume although the corpus or a setting is not that of the run.
        skip_bad: skip lines that are not pairs, instead of refusing the file.
        device: cpu, cuda or cuda:1; by default a GPU if there is one.
        display: where progress is shown; by default nowhere.

    Returns:
        The `Model` in `out`, ready to generate.

    >>> import tempfile, noise2text
    >>> pairs = [(f"{day} april 1957", f"1957-04-{day}") for day in range(10, 31)]
    >>> short = {"optim.steps": 2, "tokenizer": "characters", "noise_factor": 2.0, "validation_sentences": 2}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     where = {"out": f"{folder}/run", "device": "cpu"}
    ...     model = noise2text.train("difformer", train=pairs, **where, preset="tiny", changes=short)
    >>> len(model.generate(["17 april 1957"]).texts)
    1
    """
    group = ProcessGroup.from_environment()
    corpora = Corpora(train, valid, Path(out) / "data" / "pairs", fields)
    out, display = Path(out), (display if group.rank == 0 else None) or SilentDisplay()
    chosen_device = find_device(group.device(device) if group.world_size > 1 else device)
    chosen_recipe = find_recipe(recipe)
    training_config = change_config(chosen_recipe.preset(preset), config, changes, recipe=recipe)
    with ExitStack() as work:
        if group.world_size > 1:
            work.enter_context(group.connect(chosen_device))
        training_config, data, is_new = _open_run(
            work,
            chosen_recipe,
            training_config,
            out,
            config=config,
            changes=changes,
            corpora=corpora,
            resume=resume,
            allow_changes=allow_changes,
            skip_bad=skip_bad,
            display=display,
            group=group,
        )
        if chosen_recipe.fit is None:
            with discard_on_problem(out, is_new=is_new, group=group):
                run = TrainingRun(
                    chosen_recipe, training_config, data, out, chosen_device, display, group=group
                )
            run.train()
        elif group.rank == 0:
            fit_baseline(chosen_recipe, chosen_recipe.fit, training_config, data, out, display)
        group.barrier()
        return load(out, device=chosen_device)


def _open_run(
    work: ExitStack,
    recipe: Recipe,
    wanted: Any,
    out: Path,
    *,
    config: str | Path | None,
    changes: Mapping[str, Any] | None,
    corpora: Corpora,
    resume: bool,
    allow_changes: bool,
    skip_bad: bool,
    display: Display,
    group: ProcessGroup,
) -> tuple[Any, TrainingData, bool]:
    """The config and the data of a run, and whether it is new; its folder is locked while `work` is open."""
    with main_process_first(group, out) if group.world_size > 1 else nullcontext():
        if resume and not out.exists():
            display.show_line(f"There is no run in {out} to resume; starting a new one.")
        if group.rank == 0:
            work.enter_context(lock_folder(out))
        is_new = not (out / "run.json").exists()
        if resume:
            wanted = resume_config(
                out,
                recipe,
                wanted,
                config=config,
                changes=changes,
                files=corpora.files,
                allow_changes=allow_changes,
            )
        elif group.rank == 0:
            require_no_run(out)
        fingerprints = {}
        if group.rank == 0:
            corpora.write(seed=getattr(wanted.run, "seed", 0), skip_bad=skip_bad, show_line=display.show_line)
            fingerprints = check_corpora(out, corpora.files, allow_changes=allow_changes)
            discard_damaged_checkpoints(out, show_line=display.show_line)
        resolved, data = prepare_run(
            recipe,
            wanted,
            corpora.files,
            out,
            skip_bad=skip_bad,
            display=display,
            group=group,
            is_new=is_new,
            fingerprints=fingerprints,
        )
        return resolved, data, is_new


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
        self.strategy = SingleProcess(self.objective, self.model, group)
        if group.world_size > 1:
            self.strategy = distribute(self.strategy, sharded=config.run.sharded, build_copy=self._build_copy)
        self.optimizer = build_adamw(self.model, config.optim, device)
        self.ema = Ema(self.model, config.optim.ema_decay) if config.optim.ema_decay else None
        lengths = data.train.lengths
        shapes = self.model.layout.batch_shapes(
            lengths, max_buckets=FEW_BUCKETS if device.type == "cuda" else MANY_BUCKETS
        )
        self.plan = BatchPlan(
            lengths, max_tokens=config.optim.max_tokens, seed=config.run.seed, shapes=shapes
        )
        group.slice_rows(self.plan.min_batch_size)  # refuses a batch that is too small before training starts
        self.metrics = (
            MetricsLog(out, tensorboard=config.run.tensorboard) if group.rank == 0 else SilentMetricsLog(out)
        )
        self.best: list[tuple[float, float, int]] = []  # (score, loss, step), best first

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
        self.metrics.truncate_after(first - 1)
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
                autocast=self.autocast,
                strategy=self.strategy,
                cuda_graph_pass=self._accelerate() if self.device.type == "cuda" else None,
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
            raise Stopped(f"Stopped after step {step:,}; continue with --resume.")

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
            scores = Validator(objective, model, self.data, self.config, autocast=self.autocast)()
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
                self._write_model(self._best_model_folder(step))

    def _write_final_model(self) -> None:
        """Replace the model in the run's folder by the average of the best ones, if the config says so."""
        if self.group.rank != 0:
            return
        if self.config.optim.average_best > 1 and self.best:
            average_models(list(map(self._best_model_folder, self._best_steps())), self.out)
        score, _, step = self.best[0] if self.best else (math.nan, math.nan, 0)
        self._write_card(step)
        summary = f"{self.config.run.best_by} {abs(score):.3f} at step {step:,}"
        self.display.show_line(f"done: the best model ({summary}) is in {self.out}")

    def _write_card(self, step: int) -> None:
        """Write the model card, with the scores after this step."""
        best_by, average = self.config.run.best_by, min(self.config.optim.average_best, len(self.best))
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
        with self.metrics.pause_clock(), self.strategy.gather_weights():
            checkpoint.save(
                self.out,
                step=step,
                write_model=self._write_model,
                optimizer=self.optimizer,
                module=self.model,
                objective=self.objective,
                ema=self.ema,
                progress={"best": self.best, "unlogged": self.metrics.unlogged},
                group=self.group,
            )
        if self.group.rank == 0:
            mark_saved(self.out)
            self._remove_unused_models()

    def _remove_unused_models(self) -> None:
        """Remove the models that will not be averaged, once no checkpoint lists them any more."""
        listed = [
            checkpoint.read_progress(folder)["best"] for folder in checkpoint.list_checkpoints(self.out)
        ]
        steps = {int(step) for best in (self.best, *listed) for *_, step in best}
        wanted = set(map(self._best_model_folder, steps))
        for folder in (self.out / "best_models").glob("[0-9]" * 8):
            if folder not in wanted:
                shutil.rmtree(folder, ignore_errors=True)

    def _best_steps(self) -> list[int]:
        return [step for *_, step in self.best]

    def _best_model_folder(self, step: int) -> Path:
        """The folder of a model that will be averaged."""
        return self.out / "best_models" / f"{step:08d}"

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
        self.best = [(score, *(loss or [math.inf]), step) for score, *loss, step in progress["best"]]
        self.metrics.unlogged = progress.get("unlogged", {})
        if self.group.rank == 0:  # remove what a killed process left
            checkpoint.delete_discarded(self.out)
            self._remove_unused_models()
        return int(progress["step"])

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
                self.config.run.seed,
                KeyPurpose.LAYOUT,
                step,
                torch.arange(row, row + len(batch.pairs))[own_rows],
            )
            canvases.append(layout.randomise(canvas, uniform(keys)).to(self.device))
            row += len(batch.pairs)
        return canvases

    def _accelerate(self) -> TrainingPass | None:
        """The CUDA graphs of a run on a GPU, whose operations are fused where that is worth compiling.

        Several processes communicate within a pass, so they have no graphs.
        """
        acceleration = self.config.run.acceleration
        if acceleration == "none" or not self.objective.graph_capturable:
            return None
        try:
            from noise2text.acceleration.cuda_graph_training import CudaGraphTrainingPass
            from noise2text.acceleration.fused import fuse
        except ImportError:
            return None
        is_large = self.num_parameters >= MIN_PARAMETERS_TO_COMPILE
        if acceleration == "compiled" or (acceleration == "auto" and is_large):
            fuse(self.objective)
        if self.group.world_size > 1:
            return None
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        return CudaGraphTrainingPass(trained, self.autocast)

    def _describe_run(self, first: int) -> None:
        shapes = " ".join(f"{source}→{target}" for source, target in self.plan.shapes)
        several = self.group.world_size > 1
        devices = f"{self.group.world_size} × {self.device.type}" if several else str(self.device)
        self.display.show_line(
            f"{self.recipe.name}: {self.num_parameters:,} parameters on {devices}, "
            f"{len(self.data.train):,} pairs in {self.plan.batches_per_epoch:,} batches of shapes {shapes}"
        )
        if first > 1:
            self.display.show_line(f"resuming after step {first - 1:,}")
