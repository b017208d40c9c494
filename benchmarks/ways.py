"""One model's texts in several ways, each scored, and tested against another system's texts.

    python benchmarks/ways.py MODEL PAIRS OUT [--against TEXTS] [--teacher MODEL] < ways

A way is a line: a name, then settings of generation, such as `wide length_beam=7 noise_beam=3`. Two more are
known: `select=teacher`, and `copies=no`, which is `--no-copies`. Each way's texts and candidates are written
to OUT/NAME.jsonl, which `noise2text evaluate` reads; what is there is not written again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from noise2text.commands.generate import generate_texts
from noise2text.commands.generation_job import GenerationJob
from noise2text.core.command_line import parse_assignments
from noise2text.data.corpus import read_references, read_sources, read_texts
from noise2text.metrics.evaluate import References, bleu, chrf
from noise2text.metrics.significance import paired_bootstrap
from noise2text.models import Model
from noise2text.models.folder import load


def write(
    model: Model, sources: Sequence[str], way: list[str], path: Path, *, teacher: Path | None, batch: int
) -> None:
    """Write the texts of this way, one line per source."""
    overrides = parse_assignments(way)
    copies = overrides.pop("copies", "yes") != "no"
    scorer = teacher if overrides.get("select") == "teacher" else None
    job = GenerationJob(
        Path(), overrides=overrides, batch=batch, teacher=scorer, copies=copies, device=str(model.device)
    )
    lines = generate_texts(job.with_model(model), sources, show_line=print)
    draft = path.with_suffix(".draft")
    draft.write_text("".join(f"{line.as_json()}\n" for line in lines), encoding="utf-8")
    draft.rename(path)


def scores(texts: Sequence[str], references: References, against: Sequence[str] | None) -> str:
    """BLEU and chrF, and the p of their differences to the other texts."""
    if against is None:
        found = [metric.statistics(texts, references, None).score for metric in (bleu, chrf)]
        return "".join(f"  {label} {score:.2f}" for label, score in zip(("BLEU", "chrF"), found, strict=True))
    rows = paired_bootstrap({"theirs": against, "ours": texts}, references)
    return "".join(
        f"  {ours.metric} {ours.score:.2f} ({ours.score - theirs.score:+.2f}, p = {ours.p:.3f})"
        for theirs, ours in zip(rows["theirs"], rows["ours"], strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("pairs")
    parser.add_argument("out", type=Path)
    parser.add_argument("--against", default=None)
    parser.add_argument("--teacher", type=Path, default=None)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--device", default=None)
    arguments = parser.parse_args()
    model = load(arguments.model, device=arguments.device)
    sources, references = list(read_sources(arguments.pairs)), read_references(arguments.pairs)
    against = None if arguments.against is None else read_texts(arguments.against)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, *way in filter(None, map(str.split, sys.stdin)):
        path, begin = arguments.out / f"{name}.jsonl", time.perf_counter()
        if not path.exists():
            write(model, sources, way, path, teacher=arguments.teacher, batch=arguments.batch)
        took = time.perf_counter() - begin
        print(f"{name:<16}{scores(read_texts(str(path)), references, against)}  {took:.1f} s", flush=True)


if __name__ == "__main__":
    main()
