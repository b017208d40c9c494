"""The command line: parses, calls, prints. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from noise2text import Problem, __version__
from noise2text.problem import Stopped

__all__ = ["app", "main"]

app = typer.Typer(
    name="noise2text",
    help="Turns noise into text: diffusion models for sequence-to-sequence generation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
synth = typer.Typer(help="Write a synthetic corpus.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(synth, name="synth")

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1; the GPU when there is one.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated.")
]
Config = Annotated[Path | None, typer.Option(help="A YAML file of settings.")]
Skip = Annotated[bool, typer.Option("--skip-bad", help="Leave bad lines out and count them.")]
PAIRS = "JSON Lines, TSV, SOURCE,TARGET files or - (each may be .gz), or a prepared folder."


class ScheduleName(StrEnum):
    """The schedules that can be rescaled."""

    sqrt = "sqrt"
    linear = "linear"
    cosine = "cosine"


def main() -> None:
    """Run a command; a user's mistake is one sentence and exit code 1."""
    # Waiting threads that spin for long slow a run down many times over when other programs are busy, too.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    try:
        app()
    except Problem as problem:
        print(f"noise2text: {problem}", file=sys.stderr)
        sys.exit(1)
    except Stopped as stopped:
        print(f"noise2text: {stopped}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"noise2text {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def train(
    recipe: Annotated[
        str, typer.Argument(help="The system, e.g. difformer; `noise2text recipes` lists them.")
    ],
    train: Annotated[str, typer.Option(help=f"Training pairs: {PAIRS}")],
    valid: Annotated[str, typer.Option(help=f"Validation pairs: {PAIRS}")],
    out: Annotated[Path, typer.Option(help="The run's folder; it becomes the model.")],
    preset: Annotated[str | None, typer.Option(help="Published settings by name, or tiny.")] = None,
    config: Config = None,
    sets: Sets = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")] = False,
    skip_bad: Skip = False,
    device: Device = None,
) -> None:
    """Train a system on pairs."""
    from noise2text.runs.display import Terminal
    from noise2text.runs.train import train as run
    from noise2text.settings import parse_assignments

    with Terminal.open() as display:
        run(
            recipe,
            train=train,
            valid=valid,
            out=out,
            preset=preset,
            config=config,
            changes=parse_assignments(sets),
            resume=resume,
            skip_bad=skip_bad,
            device=device,
            display=display,
        )


@app.command()
def train_classifier(
    model: Annotated[Path, typer.Argument(help="The folder of the diffusion model that it will steer.")],
    train: Annotated[str, typer.Option(help="JSON Lines with trg (or text) and label.")],
    valid: Annotated[str, typer.Option(help="The same, of other texts.")],
    out: Annotated[Path, typer.Option(help="The classifier's folder.")],
    sets: Sets = None,
    device: Device = None,
) -> None:
    """Train a classifier of a model's noisy texts, for generate --guide."""
    from noise2text.runs.classifier import train_classifier as run
    from noise2text.runs.display import Terminal
    from noise2text.settings import parse_assignments

    with Terminal.open() as display:
        run(
            model,
            train=train,
            valid=valid,
            out=out,
            changes=parse_assignments(sets),
            device=device,
            display=display,
        )


@app.command()
def prepare(
    train: Annotated[str, typer.Option(help="Training pairs.")],
    valid: Annotated[str, typer.Option(help="Validation pairs.")],
    out: Annotated[Path, typer.Option(help="The folder to write; give OUT/train and OUT/valid to train.")],
    recipe: Annotated[str, typer.Option(help="The recipe whose presets are meant.")] = "difformer",
    preset: Annotated[str | None, typer.Option(help="Whose tokenizer and limits to use.")] = None,
    config: Config = None,
    sets: Sets = None,
    skip_bad: Skip = False,
) -> None:
    """Tokenise pairs into memory-mapped files, once for many runs."""
    from noise2text.recipes import find_recipe
    from noise2text.runs.data import open_data
    from noise2text.runs.train import settle
    from noise2text.settings import parse_assignments

    settings = settle(find_recipe(recipe), preset, config, parse_assignments(sets))
    if out.exists() and any(out.iterdir()):
        raise Problem(f"{out} is not empty: choose another folder.")
    data = open_data(train, valid, out, settings, skip_bad=skip_bad, say=print)
    print(f"{out}: {len(data.train):,} training and {len(data.valid):,} validation pairs")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def generate(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    input: Annotated[
        str, typer.Option(help="One text a line, JSON Lines with src, or - for standard input.")
    ],
    output: Annotated[
        Path | None, typer.Option(help="Where to write one text a line; standard output without it.")
    ] = None,
    sets: Sets = None,
    guide: Annotated[
        str | None, typer.Option(help="A classifier's folder, which steers every text to --class.")
    ] = None,
    label: Annotated[str | None, typer.Option("--class", help="The class that --guide steers to.")] = None,
    seed: Annotated[int, typer.Option(help="Decides the noise.")] = 0,
    batch: Annotated[int, typer.Option(help="Sentences at once; the texts do not depend on it.")] = 32,
    trace: Annotated[bool, typer.Option("--trace", help="Print the text at every step.")] = False,
    teacher: Annotated[
        Path | None, typer.Option(help="An autoregressive model that picks, with --select teacher.")
    ] = None,
    likelihood: Annotated[
        str, typer.Option(help="The teacher's: mean a token, or sum of the tokens'.")
    ] = "mean",
    device: Device = None,
    precision: Annotated[str, typer.Option(help="float32, bfloat16, int8 (on a CPU) or auto.")] = "auto",
) -> None:
    """Generate a text for each line of the input.

    Every generation setting of the model is an option, too, e.g. --steps 10 --length-beam 3; `noise2text
    inspect MODEL` lists them.
    """
    from noise2text.recipes import load
    from noise2text.runs.display import counted
    from noise2text.runs.generate import choose_selector, generate_lines
    from noise2text.settings import parse_assignments, parse_options
    from noise2text.text.corpus import read_sources

    texts = read_sources(input)
    system = load(model, device=device, precision=precision)
    steered = {name: value for name, value in (("guide", guide), ("guide_class", label)) if value is not None}
    settings = parse_options(context.args) | parse_assignments(sets) | steered
    selector = choose_selector(settings, teacher, by=likelihood, device=device, precision=precision)
    with _opened(output) as write, counted("sentences") as count:
        for line in generate_lines(
            system,
            texts,
            seed=seed,
            batch=batch,
            trace=trace,
            settings=settings,
            selector=selector,
            say=_complain,
        ):
            for stop in line.trace:
                print(f"  t={stop.time:.3f}  {stop.text}")
            write(line.text)
            count()


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def sample(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="A model folder of a model of pairs, e.g. diffusion-lm.")],
    count: Annotated[int, typer.Option(help="How many pairs.")],
    source: Annotated[
        str, typer.Option(help="A template for the source, e.g. '7 april ___{4}'; free without it.")
    ] = "",
    target: Annotated[str, typer.Option(help="A template for the target; free without it.")] = "",
    output: Annotated[
        Path | None,
        typer.Option(help="Where to write JSON Lines with src and trg; standard output without it."),
    ] = None,
    sets: Sets = None,
    seed: Annotated[int, typer.Option(help="Decides the noise.")] = 0,
    batch: Annotated[int, typer.Option(help="Pairs at once; the texts do not depend on it.")] = 32,
    device: Device = None,
    precision: Annotated[str, typer.Option(help="float32, bfloat16, int8 (on a CPU) or auto.")] = "auto",
) -> None:
    """Write pairs of source and target from noise alone, or fill in what templates leave open."""
    from noise2text.recipes import load
    from noise2text.settings import parse_assignments, parse_options

    system = load(model, device=device, precision=precision)
    settings = parse_options(context.args) | parse_assignments(sets)
    made = system.pairs(count, source=source, target=target, seed=seed, batch=batch, **settings)
    with _opened(output) as write:
        for src, trg in made:
            write(json.dumps({"src": src, "trg": trg}, ensure_ascii=False))


def _complain(line: str) -> None:
    print(f"noise2text: {line}", file=sys.stderr)


@contextmanager
def _opened(output: Path | None) -> Iterator[Any]:
    """A function that writes one line, flushed, so that what is done is not lost."""
    if output is None:
        yield lambda text: print(text, flush=True)
        return
    try:
        file = output.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise Problem(f"{output} cannot be written: {error.strerror}.") from error
    with file:
        yield lambda text: print(text, file=file, flush=True)


@app.command()
def evaluate(
    hyp: Annotated[str, typer.Option(help="What was generated: one text a line, or JSON Lines.")],
    ref: Annotated[
        str, typer.Option(help="The references: one text a line, or JSON Lines with trg and refs.")
    ],
    src: Annotated[str | None, typer.Option(help="The sources, for the copy-the-source baseline.")] = None,
    as_json: Json = False,
) -> None:
    """Score texts; every score says how it was made."""
    from noise2text.evaluation.metrics import evaluate as score
    from noise2text.evaluation.metrics import table
    from noise2text.text.corpus import read_references, read_sources, read_texts

    sources = None if src is None else list(read_sources(src))
    result = score(read_texts(hyp), read_references(ref), sources)
    if as_json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return
    rows = table(result)
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    for name, number, signature in rows:
        print(f"{name:<{widths[0]}}  {number:>{widths[1]}}  {signature}".rstrip())


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def distill(
    context: typer.Context,
    teacher: Annotated[Path, typer.Argument(help="The model folder of the teacher, e.g. a transformer.")],
    input: Annotated[str, typer.Option(help="A corpus, whose sources it answers; its targets are not read.")],
    output: Annotated[Path, typer.Option(help="The corpus to write: JSON Lines with src and trg.")],
    sets: Sets = None,
    seed: Annotated[int, typer.Option(help="Decides the noise, where the teacher has any.")] = 0,
    batch: Annotated[int, typer.Option(help="Sentences at once; the texts do not depend on it.")] = 32,
    device: Device = None,
    precision: Annotated[str, typer.Option(help="float32, bfloat16 or auto.")] = "auto",
) -> None:
    """Write a corpus of a teacher's texts to the sources of another; goes on where it was stopped.

    Every generation setting of the teacher is an option, e.g. --beam 5. Under torchrun each process takes its
    part.
    """
    from noise2text.runs.display import Quiet, Terminal
    from noise2text.runs.distill import Share
    from noise2text.runs.distill import distill as run
    from noise2text.settings import parse_assignments, parse_options

    with Terminal.open() as display:
        run(
            teacher,
            input=input,
            output=output,
            settings=parse_options(context.args) | parse_assignments(sets),
            seed=seed,
            batch=batch,
            device=device,
            precision=precision,
            display=display if Share.here().rank == 0 else Quiet(),
        )


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
    device: Device = None,
    precision: Annotated[str, typer.Option(help="float32, bfloat16 or auto.")] = "auto",
) -> None:
    """Set models side by side: speed, quality, diversity, and whether the differences are significant."""
    from noise2text.runs.compare import Terms
    from noise2text.runs.compare import compare as run
    from noise2text.runs.display import Terminal

    terms = Terms(seed=seed, batch=batch, device=device, precision=precision)
    with Terminal.open() as display:
        page = run(
            models or [],
            test=test,
            out=out,
            settings=settings,
            reported=published,
            terms=terms,
            display=display,
        )
    print(page, end="")


@app.command()
def published(
    task: Annotated[str | None, typer.Option(help="Only this task, e.g. qqp or iwslt14-de-en.")] = None,
    as_json: Json = False,
) -> None:
    """List results as the papers report them, with the table and the kind of metric."""
    import dataclasses

    from noise2text.evaluation.comparison import reported
    from noise2text.evaluation.published import published as find

    rows = find(task)
    if as_json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2, ensure_ascii=False))
        return
    print("\n\n".join(reported(rows)))


@app.command()
def rescale(
    model: Annotated[
        Path | None, typer.Argument(help="A trained model, for its real embeddings and schedule.")
    ] = None,
    schedule: Annotated[ScheduleName, typer.Option(help="The noise schedule.")] = ScheduleName.sqrt,
    vocab: Annotated[int, typer.Option(help="V, how many embeddings.")] = 10_000,
    dim: Annotated[int, typer.Option(help="d, their dimension.")] = 128,
    target: Annotated[float, typer.Option(help="The largest degeneration score allowed.")] = 0.15,
    variance_preserving: Annotated[
        bool, typer.Option("--variance-preserving", help="Rescale by eq. 8.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Decides the random embeddings and noise.")] = 0,
    as_json: Json = False,
) -> None:
    """Find the noise factor that keeps a schedule from degenerating (Difformer, appendix D)."""
    from noise2text.runs.looks import rescaling

    found = rescaling(
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
    as_json: Json = False,
) -> None:
    """Show what a model is: recipe, size, settings, schedule and the anisotropy of its embeddings."""
    from noise2text.runs.looks import look

    seen = look(model)
    if as_json:
        print(json.dumps(seen, indent=2, ensure_ascii=False))
        return
    for title, values in seen.items():
        print(title)
        for name, value in values.items():
            print(f"  {name:<24} {value:.4f}" if isinstance(value, float) else f"  {name:<24} {value}")


@app.command()
def bench(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    batches: Annotated[str, typer.Option(help="Sentences at once, with commas between them.")] = "1,32",
    steps: Annotated[str, typer.Option(help="Steps, where the system has any.")] = "5,15",
    candidates: Annotated[str, typer.Option(help="Candidates a sentence.")] = "1,10",
    length: Annotated[int, typer.Option(help="Tokens of the made-up sources, and of the targets.")] = 25,
    input: Annotated[str | None, typer.Option(help="Time these texts instead of made-up ones.")] = None,
    peer: Annotated[str | None, typer.Option(help="hf: time a Marian model of the same shape, too.")] = None,
    device: Device = None,
    precision: Annotated[str, typer.Option(help="float32, bfloat16, int8 (on a CPU) or auto.")] = "auto",
    as_json: Json = False,
) -> None:
    """Time a model: latency, throughput, memory, share of the machine's peak, and how cost grows."""
    from noise2text.recipes import load
    from noise2text.runs.bench import report

    system = load(model, device=device, precision=precision)
    for line in report(
        system,
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
def recipes(as_json: Json = False) -> None:
    """List the systems, where they are described, and their presets."""
    from noise2text.recipes import RECIPES

    rows = [
        {"name": r.name, "paper": r.paper, "section": r.section, "line": r.line, "presets": list(r.presets)}
        for r in RECIPES.values()
    ]
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for row in rows:
        print(f"{row['name']:<12} {row['line']}\n{'':<12} {row['paper']}, section {row['section']}")
        print(f"{'':<12} presets: {', '.join(row['presets'])}")


@app.command()
def settings(
    recipe: Annotated[str, typer.Argument(help="A recipe's name.")],
    preset: Annotated[str | None, typer.Option(help="One of its presets.")] = None,
) -> None:
    """List a recipe's settings, their values and what they are."""
    from noise2text.recipes import find_recipe
    from noise2text.settings import describe

    for name, value, line in describe(find_recipe(recipe).settings(preset)):
        print(f"{name:<22} {value!s:<14} {line}")


@synth.command()
def dates(
    out: Annotated[Path, typer.Option(help="The folder for train.jsonl, valid.jsonl and test.jsonl.")],
    pairs: Annotated[int, typer.Option(help="How many training pairs.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Decides which dates.")] = 0,
) -> None:
    """Written-out dates in several formats and languages, and their ISO form."""
    from noise2text.text.dates import write_dates

    write_dates(out, pairs=pairs, seed=seed)
    print(f"{out}: {pairs:,} training pairs, and validation and test pairs of other dates")


@synth.command()
def days(
    out: Annotated[Path, typer.Option(help="The folder for train.jsonl, valid.jsonl and test.jsonl.")],
    pairs: Annotated[int, typer.Option(help="How many training pairs.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Decides which days.")] = 0,
) -> None:
    """A year and any one of its days, labelled with the month: a task for guidance."""
    from noise2text.text.dates import write_days

    write_days(out, pairs=pairs, seed=seed)
    print(f"{out}: {pairs:,} training pairs, and validation and test pairs of other days")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to leave the model and its figures.")] = Path("runs/demo"),
    sets: Sets = None,
) -> None:
    """Learn to read dates in a few minutes: synthesise, train, generate, evaluate."""
    from noise2text.runs.demo import demo as run
    from noise2text.settings import parse_assignments

    run(out, changes=parse_assignments(sets))
