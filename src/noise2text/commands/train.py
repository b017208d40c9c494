"""Train: pairs in, a model folder out.

The run's folder is itself the model: its root holds the best weights so far (or, at the end, the average of
the best few), `checkpoint-…` the point to resume from, `data` the tokens, metrics.jsonl the curves.
`TrainingRun` (training_run.py) loads the checkpoint that a run resumes from; run_setup.py finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from noise2text.commands.display import Display, SilentDisplay
from noise2text.commands.fit_baseline import fit_baseline
from noise2text.commands.metrics_file import MetricsFile
from noise2text.commands.run_corpora import Corpora
from noise2text.commands.run_data import TrainingData
from noise2text.commands.run_setup import (
    change_config,
    check_corpora,
    discard_damaged_checkpoints,
    discard_on_problem,
    main_process_first,
    prepare_run,
    require_no_run,
    resume_config,
)
from noise2text.commands.training_run import TrainingRun
from noise2text.core.devices import find_device
from noise2text.core.files import require_utf8_name
from noise2text.core.locks import lock_folder
from noise2text.models import Model
from noise2text.models.folder import load
from noise2text.models.registry import Recipe, find_recipe
from noise2text.training.callbacks import Callbacks, TrainingCallback
from noise2text.training.process_group import ProcessGroup

__all__ = ["train"]


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
    callbacks: Sequence[TrainingCallback] = (),
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
        fields: the names of source and target in rows that are dicts, if they are not known ones such as
            "src" and "trg", or two languages.
        preset: one of the recipe's presets; by default that of its paper.
        config: a YAML file of settings, such as `noise2text config` prints.
        changes: settings by name, such as `{"optim.steps": 3000, "lr": 1e-3}`; they come last.
        resume: continue from the newest checkpoint in `out` that is as it was saved.
        allow_changes: resume although the corpus or a setting is not that of the run.
        skip_bad: skip lines that are not pairs, instead of refusing the file.
        device: cpu, cuda or cuda:1; by default a GPU if there is one.
        display: where progress is shown; by default nowhere.
        callbacks: what follows the run, such as `WandbLogger()` or a `TrainingCallback` of your own.

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
                    chosen_recipe,
                    training_config,
                    data,
                    out,
                    chosen_device,
                    display,
                    group=group,
                    callbacks=callbacks,
                )
            run.train()
        elif group.rank == 0:
            followers = Callbacks([MetricsFile(), *callbacks])
            fit_baseline(
                chosen_recipe, chosen_recipe.fit, training_config, data, out, display, callbacks=followers
            )
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
        require_utf8_name(out)  # now rather than when the first checkpoint is read
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
