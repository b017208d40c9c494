"""Tatoeba, German to English: short sentences written by volunteers, as manythings.org publishes them.

A sentence may have many translations, and each of these may have others. Sentences that are linked by a chain
of translations are in the same split, so that no sentence of validation or test occurs in training.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial

from noise2text.core.errors import Problem
from noise2text.data.builders.dataset import SPLITS, Dataset, DatasetRow, make_row, skip_row
from noise2text.data.builders.raw_files import RawFile, RawFiles

__all__ = ["TATOEBA", "link_components", "read_translations"]

NAME = "deu.txt"


def read_translations(raw: RawFiles, *, held_out: int) -> Iterator[DatasetRow]:
    """German with English; validation and test have `held_out` pairs each."""
    seen: dict[tuple[str, str], None] = {}
    for location, text in raw.read_lines(NAME):
        columns = text.split("\t")
        if len(columns) < 2:
            raise Problem(f"{location} has no tab; a line is English TAB German TAB attribution.")
        pair = (columns[1], columns[0])
        if not all(side.strip() for side in pair):
            yield skip_row("an empty side")
            continue
        if pair in seen:
            yield skip_row("seen before")
        seen[pair] = None
    pairs = list(seen)
    splits = _split(pairs, held_out)
    for split in SPLITS:
        yield from (
            make_row(split, src, trg) for (src, trg), own in zip(pairs, splits, strict=True) if own == split
        )


def link_components(pairs: Sequence[tuple[str, str]]) -> list[int]:
    """The connected component of each pair: the same number for pairs linked by shared sentences."""
    first: dict[str, int] = {}  # the first pair with each sentence, in either language
    parents = list(range(len(pairs)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    for index, sides in enumerate(pairs):
        for sentence in sides:
            earlier = root(first.setdefault(sentence, index))
            parents[max(earlier, root(index))] = min(earlier, root(index))
    return [root(index) for index in range(len(pairs))]


def _split(pairs: Sequence[tuple[str, str]], held_out: int) -> list[str]:
    """The split of each pair: components in a fixed random order, each put where it still fits."""
    roots = link_components(pairs)
    sizes: dict[int, int] = {}
    for root in roots:
        sizes[root] = sizes.get(root, 0) + 1
    order = list(sizes)
    random.Random("tatoeba").shuffle(order)
    remaining = {"valid": held_out, "test": held_out}
    chosen: dict[int, str] = {}
    for root in order:
        for split, left in remaining.items():
            if sizes[root] <= left:
                chosen[root] = split
                remaining[split] -= sizes[root]
                break
    return [chosen.get(root, "train") for root in roots]


TATOEBA = Dataset(
    name="tatoeba",
    task="translation, German to English",
    papers=(),
    files=(RawFile(NAME, "https://www.manythings.org/anki/deu-eng.zip"),),
    sizes=(),
    license="CC BY 2.0 FR",
    processing_steps=(
        "the second column is the source, the first the target; a pair counts once; case is kept",
        "pairs that share sentences, directly or by a chain, are in one split",
        "2,000 pairs each are validation and test, from a fixed random order; the rest is training",
    ),
    read_rows=partial(read_translations, held_out=2_000),
)
