"""Whether the rest of a date comes out better when its true year is given as a prefix.

    python benchmarks/given_year.py write FOLDER
    python benchmarks/given_year.py measure MODEL FOLDER/test.jsonl [--steps 20] [--seed 0]

`write` makes a corpus of short dates that can be read in two ways: 05/04/07 is 2005-04-07 or 2007-04-05, and
only the year tells. `measure` generates each source freely and with the year of its target held, with the
same noise, and counts the exact matches of the rest ("-04-07"). McNemar's exact test asks whether those that
only one of the two gets right could be split so by chance. It takes any other corpus of ISO dates as well.
"""

from __future__ import annotations

import argparse
import dataclasses
from datetime import date, timedelta
from itertools import groupby
from pathlib import Path
from random import Random

from scipy.stats import binomtest

import noise2text
from noise2text.data.corpus import Pair, read_pairs, write_pairs
from noise2text.models import Model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    write = commands.add_parser("write")
    write.add_argument("folder", type=Path)
    write.set_defaults(run=write_ambiguous)
    measured = commands.add_parser("measure")
    measured.add_argument("model")
    measured.add_argument("pairs")
    measured.add_argument("--steps", type=int, default=20)
    measured.add_argument("--seed", type=int, default=0)
    measured.set_defaults(run=measure)
    arguments = vars(parser.parse_args())
    arguments.pop("run")(**arguments)


def write_ambiguous(folder: Path) -> None:
    """Writes train.jsonl, valid.jsonl and test.jsonl: the days of 2001 to 2031, each in one of two orders."""
    first = date(2001, 1, 1)
    days = [first + timedelta(days=day) for day in range((date(2032, 1, 1) - first).days)]
    random = Random("ambiguous dates")
    random.shuffle(days)
    pairs = [Pair(f"{day:{random.choice(('%y/%m/%d', '%d/%m/%y'))}}", day.isoformat()) for day in days]
    folder.mkdir(parents=True, exist_ok=True)
    for name, split in (("valid", pairs[:500]), ("test", pairs[500:1500]), ("train", pairs[1500:])):
        write_pairs(folder / f"{name}.jsonl", split)


def measure(model: str, pairs: str, steps: int, seed: int) -> None:
    """Prints both shares of exact rests and the test's p."""
    system = noise2text.load(model)
    system.generation_config = dataclasses.replace(system.generation_config, steps=steps, stop_early=0)
    read = list(read_pairs(pairs))
    sources, targets = [pair.src for pair in read], [pair.trg for pair in read]
    free = system.generate(sources, seed=seed, batch=100).texts
    given = with_years(system, sources, targets, seed=seed)
    right = [
        [text[4:] == target[4:] for text, target in zip(made, targets, strict=True)] for made in (free, given)
    ]
    for name, rests in zip(("free", "year given"), right, strict=True):
        print(f"{name:<12} {sum(rests) / len(rests):6.1%} of {len(rests)} rests are exact")
    only_free, only_given = (
        sum(a and not b for a, b in zip(one, other, strict=True)) for one, other in (right, right[::-1])
    )
    split = only_free + only_given
    p = binomtest(only_given, split, alternative="greater").pvalue if split else 1.0
    print(f"only free {only_free}, only given {only_given}: McNemar's exact test, one-sided, p = {p:.2g}")


def with_years(system: Model, sources: list[str], targets: list[str], *, seed: int) -> list[str]:
    """The texts with each target's year held; sources of one year go together, at their own places."""
    made = [""] * len(sources)
    order = sorted(range(len(sources)), key=lambda place: targets[place][:4])
    for year, group in groupby(order, key=lambda place: targets[place][:4]):
        indices = list(group)
        chosen = [sources[place] for place in indices]
        texts = system.generate(chosen, seed=seed, indices=indices, prefix=year).texts
        for place, text in zip(indices, texts, strict=True):
            made[place] = text
    return made


if __name__ == "__main__":
    main()
