"""Whether the rest of a date comes out better when its true year is given as a prefix.

    python benchmarks/given_year.py write FOLDER
    python benchmarks/given_year.py measure MODEL FOLDER/test.jsonl [--steps 20] [--seed 0]

`write` makes a corpus of short dates that can be read in two ways: 05/04/07 is 2005-04-07 or 2007-04-05, and
only the year tells. `measure` generates each source freely and with the year of its target given, with the
same noise, and counts the exact matches of the rest ("-04-07"). McNemar's exact test asks whether those that
only one of the two gets right could be split so by chance. It takes any other corpus of ISO dates as well.
"""

from __future__ import annotations

import argparse
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
    measuring = commands.add_parser("measure")
    measuring.add_argument("model")
    measuring.add_argument("pairs")
    measuring.add_argument("--steps", type=int, default=20)
    measuring.add_argument("--seed", type=int, default=0)
    measuring.set_defaults(run=measure)
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
    loaded = noise2text.load(model)
    loaded.generation_config = loaded.generation_config.replace(steps=steps, stop_early=0)
    read = list(read_pairs(pairs))
    sources, targets = [pair.src for pair in read], [pair.trg for pair in read]
    free = loaded.generate(sources, seed=seed, batch=100).texts
    given = generate_with_years(loaded, sources, targets, seed=seed)
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


def generate_with_years(model: Model, sources: list[str], targets: list[str], *, seed: int) -> list[str]:
    """The texts with each target's year given; sources of one year go together, with their own indices."""
    made = [""] * len(sources)
    order = sorted(range(len(sources)), key=lambda index: targets[index][:4])
    for year, group in groupby(order, key=lambda index: targets[index][:4]):
        indices = list(group)
        chosen = [sources[index] for index in indices]
        texts = model.generate(chosen, seed=seed, indices=indices, prefix=year).texts
        for index, text in zip(indices, texts, strict=True):
            made[index] = text
    return made


if __name__ == "__main__":
    main()
