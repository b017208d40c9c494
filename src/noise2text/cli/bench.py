"""`noise2text bench`: time generation or training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from noise2text.cli.option_groups import OptionGroup
from noise2text.cli.options import SETTINGS, Hardware, JsonOption, SetOption, app
from noise2text.core.errors import Problem

__all__ = ["bench"]

BENCH_OPTIONS = {
    "steps": "--steps",
    "stop_early": "--steps",
    "noise_beam": "--candidates",
    "length": "--length",
}
"""The generation settings that `bench` sets itself, and the option for each."""


class TimedGeneration(OptionGroup):
    """What of generation is timed, and beside what."""

    panel = "Generation"
    batches: Annotated[str, typer.Option(help="Batch sizes, separated by commas.")] = "1,32"
    steps: Annotated[str, typer.Option(help="Sampling steps, separated by commas.")] = "5,15"
    candidates: Annotated[str, typer.Option(help="Candidates per sentence, separated by commas.")] = "1,10"
    input: Annotated[str | None, typer.Option(help="Time these texts instead of random ones.")] = None
    peer: Annotated[
        str | None,
        typer.Option(help="Also time hf (a Marian model of the same shape) or ctranslate2 (a Transformer)."),
    ] = None
    teacher: Annotated[
        Path | None,
        typer.Option(help="The Transformer that --peer ctranslate2 converts, for texts of --input."),
    ] = None


class Training(OptionGroup):
    """Whether training is timed instead."""

    panel = "Training"
    training: Annotated[
        bool,
        typer.Option("--training", help="Time training steps instead: eager, with CUDA graphs, compiled."),
    ] = False
    rows: Annotated[int, typer.Option(help="Pairs per training step; 0 takes them from the settings.")] = 0


class BenchSettings(OptionGroup):
    """The generation settings of the model."""

    panel = SETTINGS
    assignments: SetOption = None


@app.command()
def bench(
    model: Annotated[Path, typer.Argument(help="A model folder, or a shipped model such as de-en.")],
    length: Annotated[int, typer.Option(help="Tokens per random source, and per target.")] = 25,
    as_json: JsonOption = False,
    **options: Annotated[Any, TimedGeneration, Training, BenchSettings, Hardware],
) -> None:
    """Time generation or training of a model.

    The table shows latency, throughput, memory and the fraction of the hardware's peak. The lines
    below it show how the time grows with length, steps, candidates and batch.
    """
    from noise2text.commands.bench import bench_report
    from noise2text.commands.bench_training import training_report
    from noise2text.core.command_line import parse_assignments
    from noise2text.core.config import apply_overrides
    from noise2text.models.folder import load

    generation, training, hardware = TimedGeneration(options), Training(options), vars(Hardware(options))
    assignments = BenchSettings(options).assignments
    if training.training:
        if not generation.is_default() or assignments:
            raise Problem("--training times training steps: it takes only --rows, --length and --precision.")
        for line in training_report(model, length=length, rows=training.rows, as_json=as_json, **hardware):
            print(line)
        return
    if training.rows:
        raise Problem("--rows is the number of pairs per training step: add --training, or use --batches.")
    if length < 1:
        raise Problem(f"The length must be at least 1 token, not {length}.")
    loaded = load(model, **hardware)
    wanted = parse_assignments(assignments)
    for name in sorted(BENCH_OPTIONS.keys() & wanted.keys()):
        raise Problem(f"bench sets {name} itself: use {BENCH_OPTIONS[name]} instead of --set {name}.")
    loaded.generation_config = apply_overrides(loaded.generation_config, wanted, origin="bench")
    for line in bench_report(loaded, model, length=length, as_json=as_json, **vars(generation)):
        print(line)
