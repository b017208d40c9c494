"""Commands that compare models, and look at them."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import PAIRS, DeviceOption, JsonOption, SetOption, app
from noise2text.commands.bench import bench_report
from noise2text.commands.inspect import inspect_model
from noise2text.core.errors import Problem

__all__ = ["bench", "compare", "inspect", "published", "recipes", "rescale", "settings"]


BATCHES, STEPS, CANDIDATES = "1,32", "5,15", "1,10"  # that `bench` times, unless told
BENCH_OPTIONS = {
    "steps": "--steps",
    "stop_early": "--steps",
    "noise_beam": "--candidates",
    "length": "--length",
}
"""The settings of generation that `bench` decides itself, and by which option it is told."""
VOCABULARY, DIMENSION = 10_000, 128  # of the embeddings that `rescale` draws, unless told


class ScheduleName(StrEnum):
    """The schedules that can be rescaled."""

    sqrt = "sqrt"
    linear = "linear"
    cosine = "cosine"


@app.command()
def compare(
    test: Annotated[str, typer.Option(help=f"The pairs to be judged on: {PAIRS}")],
    out: Annotated[Path, typer.Option(help="The folder for the table and the outputs.")],
    models: Annotated[list[Path] | None, typer.Argument(help="Model folders; the first is the base.")] = None,
    settings: Annotated[
        Path | None, typer.Option(help="A YAML file of generation settings by model, and of more models.")
    ] = None,
    published: Annotated[
        str | None, typer.Option(help="Show what papers report on this task, e.g. qqp, beside them.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides the noise.")] = 0,
    batch: Annotated[int, typer.Option(help="Sentences at once.")] = 32,
    device: DeviceOption = None,
    precision: Annotated[str, typer.Option(help="float32, bfloat16 or auto.")] = "auto",
) -> None:
    """Set models side by side: speed, quality, diversity, and whether the differences are significant."""
    from noise2text.commands.compare import CompareOptions
    from noise2text.commands.compare import compare as run
    from noise2text.commands.display import TerminalDisplay

    options = CompareOptions(seed=seed, batch=batch, device=device, precision=precision)
    with TerminalDisplay.open() as display:
        page = run(
            models or [],
            test=test,
            out=out,
            settings=settings,
            reported=published,
            options=options,
            display=display,
        )
    print(page, end="")


@app.command()
def published(
    task: Annotated[str | None, typer.Option(help="Only this task, e.g. qqp or iwslt14-de-en.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List results as the papers report them, with the table and the kind of metric."""
    import dataclasses

    from noise2text.metrics.comparison import format_published
    from noise2text.metrics.published import published as find

    rows = find(task)
    if as_json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2, ensure_ascii=False))
        return
    print("\n\n".join(format_published(rows)))


@app.command()
def rescale(
    model: Annotated[
        Path | None, typer.Argument(help="A trained model, for its real embeddings and schedule.")
    ] = None,
    schedule: Annotated[ScheduleName, typer.Option(help="The noise schedule.")] = ScheduleName.sqrt,
    vocab: Annotated[int, typer.Option(help="V, how many embeddings.")] = VOCABULARY,
    dim: Annotated[int, typer.Option(help="d, their dimension.")] = DIMENSION,
    target: Annotated[float, typer.Option(help="The largest degeneration score allowed.")] = 0.15,
    variance_preserving: Annotated[
        bool, typer.Option("--variance-preserving", help="Rescale by eq. 8.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Decides the random embeddings and noise.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Find the noise factor that keeps a schedule from degenerating (Difformer, appendix D)."""
    from noise2text.commands.inspect import find_noise_factor

    if model is not None and (schedule, vocab, dim) != (ScheduleName.sqrt, VOCABULARY, DIMENSION):
        raise Problem("A model has its own schedule and embeddings: leave --schedule, --vocab and --dim out.")
    found = find_noise_factor(
        model,
        schedule=schedule,
        vocab=vocab,
        dim=dim,
        target=target,
        preserving=variance_preserving,
        seed=seed,
    )
    if as_json:
        print(json.dumps(found))
        return
    scores = f"degeneration score {found['dgs']:.3f} (unscaled {found['dgs_unscaled']:.3f})"
    print(f"factor {found['factor']:g}: {scores}")


@app.command()
def inspect(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    as_json: JsonOption = False,
) -> None:
    """Show what a model is: recipe, size, settings, schedule and the anisotropy of its embeddings."""

    facts = inspect_model(model)
    if as_json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    for title, values in facts.items():
        print(title)
        for name, value in values.items():
            print(f"  {name:<24} {value:.4f}" if isinstance(value, float) else f"  {name:<24} {value}")


@app.command()
def bench(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    batches: Annotated[str, typer.Option(help="Sentences at once, with commas between them.")] = BATCHES,
    steps: Annotated[str, typer.Option(help="Steps, where the system has any.")] = STEPS,
    candidates: Annotated[str, typer.Option(help="Candidates a sentence.")] = CANDIDATES,
    length: Annotated[int, typer.Option(help="Tokens of the made-up sources, and of the targets.")] = 25,
    input: Annotated[str | None, typer.Option(help="Time these texts instead of made-up ones.")] = None,
    peer: Annotated[str | None, typer.Option(help="hf: time a Marian model of the same shape, too.")] = None,
    assignments: SetOption = None,
    train: Annotated[
        bool, typer.Option("--train", help="Time training steps instead: plain, recorded and compiled.")
    ] = False,
    rows: Annotated[int, typer.Option(help="Pairs of a training step; 0 for those of its settings.")] = 0,
    device: DeviceOption = None,
    precision: Annotated[str, typer.Option(help="float32, bfloat16, int8 (on a CPU) or auto.")] = "auto",
    as_json: JsonOption = False,
) -> None:
    """Time a model: latency, throughput, memory, share of the machine's peak, and how cost grows."""
    if train:
        from noise2text.commands.bench_training import training_report

        if (batches, steps, candidates, input, peer, assignments) != (
            BATCHES,
            STEPS,
            CANDIDATES,
            None,
            None,
            None,
        ):
            raise Problem("--train times training steps: it takes --rows, --length and --precision alone.")
        for line in training_report(
            model, device=device, precision=precision, length=length, rows=rows, as_json=as_json
        ):
            print(line)
        return
    if rows:
        raise Problem("--rows are pairs of a training step: give --train, too, or --batches instead.")
    if length < 1:
        raise Problem(f"The length must be at least 1 token, not {length}.")
    from noise2text.core.config import apply_overrides, parse_assignments
    from noise2text.models.folder import load

    loaded = load(model, device=device, precision=precision)
    wanted = parse_assignments(assignments)
    for name in sorted(BENCH_OPTIONS.keys() & wanted.keys()):
        raise Problem(
            f"The setting {name} is what {BENCH_OPTIONS[name]} says: give that instead of --set {name}."
        )
    loaded.how = apply_overrides(loaded.how, wanted, origin="bench")
    for line in bench_report(
        loaded,
        model,
        batches=batches,
        steps=steps,
        candidates=candidates,
        length=length,
        input=input,
        peer=peer,
        as_json=as_json,
    ):
        print(line)


@app.command()
def recipes(as_json: JsonOption = False) -> None:
    """List the systems, where they are described, and their presets."""
    from noise2text.models.registry import recipes

    rows = [
        {
            "name": r.name,
            "paper": r.paper,
            "section": r.section,
            "line": r.summary,
            "presets": list(r.presets),
        }
        for r in recipes().values()
    ]
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    width = max(len(str(row["name"])) for row in rows)
    for row in rows:
        print(
            f"{row['name']:<{width}}  {row['line']}\n{'':<{width}}  {row['paper']}, section {row['section']}"
        )
        print(f"{'':<{width}}  presets: {', '.join(row['presets'])}")


@app.command()
def settings(
    recipe: Annotated[str, typer.Argument(help="A recipe's name.")],
    preset: Annotated[str | None, typer.Option(help="One of its presets.")] = None,
) -> None:
    """List a recipe's settings, their values and what they are."""
    from noise2text.core.config import describe
    from noise2text.models.registry import find_recipe

    for name, value, line in describe(find_recipe(recipe).preset(preset)):
        print(f"{name:<22} {value!s:<14} {line}")
