"""`noise2text data`: build the papers' datasets from their raw files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noise2text.cli.folding import print_folded
from noise2text.cli.options import JsonOption, app
from noise2text.core.errors import Problem

if TYPE_CHECKING:
    from noise2text.data.builders.build import BuildReport
    from noise2text.data.builders.dataset import Dataset

__all__ = ["data"]


@app.command()
def data(
    name: Annotated[str | None, typer.Argument(help="The dataset; --list shows all of them.")] = None,
    raw: Annotated[Path | None, typer.Option(help="The folder of the raw files.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder to write; must be new or empty.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="Swap source and target.")] = False,
    detokenise: Annotated[
        bool, typer.Option("--detokenise", help="Make plain text of Moses tokens: it &apos;s → it's.")
    ] = False,
    input: Annotated[
        str | None,
        typer.Option(
            help="With --detokenise, instead of --raw: a model's texts, or the targets of these pairs."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="With --input, the file to write.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail if the split sizes match no paper.")] = False,
    list_all: Annotated[
        bool, typer.Option("--list", help="List the datasets and where to get their files.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Build a dataset of the papers from its raw files.

    The result is train.jsonl, valid.jsonl and test.jsonl.
    """
    from noise2text.commands.display import show_count
    from noise2text.data.builders.build import build_dataset
    from noise2text.data.builders.registry import DATASETS, find_dataset

    if list_all:
        chosen = [find_dataset(name)] if name else list(DATASETS.values())
        if as_json:
            print(json.dumps([_record(dataset) for dataset in chosen], indent=2, ensure_ascii=False))
        else:
            print_folded("\n\n".join(map(_entry, chosen)))
        return
    if input is not None or output is not None:
        _detokenize_texts(name, input, output, asked=detokenise, reverse=reverse)
        return
    if name is None or raw is None or out is None:
        raise Problem(
            "Give the name of a dataset, --raw DIR and --out DIR; `noise2text data --list` lists them."
        )
    with show_count("lines") as progress:
        dataset = find_dataset(name)
        built = build_dataset(
            dataset, raw, out=out, reverse=reverse, detokenize=detokenise, progress=progress
        )
    print(json.dumps(_result_record(built), ensure_ascii=False) if as_json else _summary(built, out))
    _compare(built, out, strict=strict)


def _detokenize_texts(
    name: str | None, input: str | None, output: Path | None, *, asked: bool, reverse: bool
) -> None:
    """Write the texts of a model as plain text, one per line."""
    from noise2text.core.files import write_text_file
    from noise2text.core.locks import lock_output
    from noise2text.data.builders.detokenise import load_detokenizer, require_moses_languages
    from noise2text.data.builders.registry import find_dataset
    from noise2text.data.corpus import read_texts

    if name is None or input is None or output is None or not asked:
        raise Problem("To undo tokens of texts, give NAME --detokenise --input FILE --output FILE.")
    source, target = require_moses_languages(find_dataset(name))
    detokenize = load_detokenizer(source if reverse else target)
    lines = [detokenize(text) for text in read_texts(input)]
    with lock_output(output):
        write_text_file(output, "".join(f"{line}\n" for line in lines))
    print(f"{output}: {len(lines):,} texts")


def _record(dataset: Dataset) -> dict[str, object]:
    return {
        "name": dataset.name,
        "task": dataset.task,
        "papers": list(dataset.papers),
        "licence": dataset.license,
        "files": [{"name": file.name, "address": file.url} for file in dataset.files],
        "sizes": [
            {"train": sizes.train, "valid": sizes.valid, "test": sizes.test, "where": sizes.reference}
            for sizes in dataset.sizes
        ],
        "rules": list(dataset.processing_steps),
    }


def _entry(dataset: Dataset) -> str:
    """The text that --list prints about a dataset, its files grouped by address."""
    papers = f" ({', '.join(dataset.papers)})" if dataset.papers else ""
    lines = [f"{dataset.name}: {dataset.task}{papers}"]
    for sizes in dataset.sizes:
        lines.append(f"  {sizes.train:,} / {sizes.valid:,} / {sizes.test:,} pairs ({sizes.reference})")
    for url in dict.fromkeys(file.url for file in dataset.files):
        names = ", ".join(file.name for file in dataset.files if file.url == url)
        lines.append(f"  {names}\n    from {url}")
    return "\n".join([*lines, f"  license: {dataset.license}"])


def _result_record(built: BuildReport) -> dict[str, object]:
    return {
        "name": built.dataset.name,
        "pairs": built.pairs,
        "left_out": built.skip_reasons,
        "sizes_agree_with": built.matching_references,
    }


def _summary(built: BuildReport, out: Path) -> str:
    sizes = ", ".join(f"{number:,} {split}" for split, number in built.pairs.items())
    lines = [f"{out}: {sizes} pairs"]
    lines += [f"left out: {number:,} ({reason})" for reason, number in built.skip_reasons.items()]
    lines += [f"the sizes are those of {reference}" for reference in built.matching_references]
    return "\n".join(lines)


def _compare(built: BuildReport, out: Path, *, strict: bool) -> None:
    """Print the differences to each paper; with `strict`, raise a Problem if no paper agrees."""
    disagree = bool(built.dataset.sizes) and not built.matching_references
    for sizes in built.dataset.sizes:
        for difference in built.size_mismatches(sizes):
            typer.echo(f"{'warning' if disagree else 'note'}: {difference}", err=True)
    if strict and disagree:
        raise Problem(
            f"No paper reports the split sizes of {out}; the files were written, but do not compare scores "
            "on them with a paper's."
        )
