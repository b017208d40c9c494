"""Train: pairs in, a model folder out.

The run's folder is itself the model: its root holds the best weights so far (or, at the end, the average of
the best few), `checkpoint-…` the point to resume from, `data` the tokens, metrics.jsonl the curves.
`TrainingRun` (training_run.py) loads the checkpoint that a run resumes from; run_setup.py finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from inspect import signature
from pathlib import Path
from typing import Any, ParamSpec

from noise2text.commands.display import Display, SilentDisplay, require_display
from noise2text.commands.run_card import write_run_card
from noise2text.commands.run_corpora import Corpora
from noise2text.commands.run_setup import OpenRun, RunSetup, change_config
from noise2text.commands.training_run import TrainingRun
from noise2text.commands.validation import score_generations
from noise2text.core.arguments import parse_flag, parse_path, require_new_folder_name, require_settings
from noise2text.core.config import describe
from noise2text.core.devices import find_device
from noise2text.core.errors import Problem, suggest
from noise2text.core.setting_words import explain_misplaced_setting
from noise2text.models import Model
from noise2text.models.folder import load, save
from noise2text.models.registry import Fit, find_recipe, list_recipes
from noise2text.training.callbacks import Callbacks, TrainingCallback, TrainingStart, require_callbacks
from noise2text.training.loggers import MetricsFile
from noise2text.training.process_group import ProcessGroup

__all__ = ["train"]

P = ParamSpec("P")


def _explain_unknown_arguments(function: Callable[P, Model]) -> Callable[P, Model]:
    """The function, in which an argument that it does not have is a Problem that says where settings go."""
    arguments = signature(function).parameters

    @wraps(function)
    def explaining(*values: P.args, **named: P.kwargs) -> Model:
        for name in (each for each in named if each not in arguments):
            recipe = list_recipes().get(str(values[0] if values else named.get("recipe")))
            settings = [] if recipe is None else [each for each, _, _ in describe(recipe.preset())]
            explained = explain_misplaced_setting(name, settings)
            if explained is None:
                raise Problem(f"train has no argument {name}; {suggest(name, arguments)}")
            raise Problem(
                f'train takes settings by name, such as changes={{"optim.lr": 1e-3}}, and has no argument '
                f"{name}; {explained}"
            )
        return function(*values, **named)

    return explaining


@_explain_unknown_arguments
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
    out = parse_path(out, where="train")
    require_new_folder_name(out)
    require_settings({} if changes is None else changes, where="train, as changes,")
    callbacks = require_callbacks(callbacks)
    require_display(display)
    flag = partial(parse_flag, where="train")
    resume, allow_changes = flag(resume, "resume"), flag(allow_changes, "allow_changes")
    skip_bad = flag(skip_bad, "skip_bad")
    group = ProcessGroup.from_environment()
    corpora = Corpora(train, valid, out / "data" / "pairs", fields)
    chosen_device = find_device(group.device(device) if group.world_size > 1 else device)
    chosen_recipe = find_recipe(recipe)
    setup = RunSetup(
        chosen_recipe,
        out,
        corpora,
        change_config(chosen_recipe.preset(preset), config, changes or {}, recipe=recipe),
        config_file=config,
        changes=changes or {},
        resume=resume,
        allow_changes=allow_changes,
        skip_bad=skip_bad,
        display=(display if group.rank == 0 else None) or SilentDisplay(),
        group=group,
    )
    with group.connect(chosen_device), setup.open() as run:
        if chosen_recipe.fit is None:
            with setup.discard_on_problem(is_new=run.is_new):
                training = TrainingRun(
                    chosen_recipe,
                    run.config,
                    run.data,
                    setup.out,
                    chosen_device,
                    setup.display,
                    group=group,
                    callbacks=callbacks,
                )
            training.train()
        elif group.rank == 0:
            _fit_baseline(setup, run, chosen_recipe.fit, callbacks=callbacks)
        group.barrier()
        return load(out, device=chosen_device)


def _fit_baseline(setup: RunSetup, run: OpenRun, fit: Fit, *, callbacks: Sequence[TrainingCallback]) -> None:
    """Fit a baseline without training steps; its model and its validation scores are in the run's folder."""
    recipe, out, data = setup.recipe, setup.out, run.data
    config, model = fit(run.config, data.tokenizer, data.train)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    followers = Callbacks([MetricsFile(), *callbacks])
    with followers.follow(TrainingStart(recipe.name, config, out, num_parameters, first_step=0, last_step=0)):
        scores = score_generations(model, data.validation_pairs)
        followers.on_validation(0, scores)
        save(out, model, recipe=recipe.name, config=config)
        write_run_card(
            out,
            recipe=recipe.name,
            config=config,
            data=data,
            num_parameters=num_parameters,
            step=0,
            training="",
        )
    shown = "  ".join(f"{name} {score:.3f}" for name, score in scores.items())
    setup.display.show_line(f"done: {recipe.name} over {len(data.train):,} pairs (valid {shown}) is in {out}")
