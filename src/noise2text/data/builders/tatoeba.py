"""Tatoeba, German to English: short sentences that volunteers wrote, as manythings.org bundles them.

A sentence has many translations, and each of these may have others. Sentences that are linked by any chain of
translations go into the same split, so that none of validation or test, on either side, occurs in training.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial

from noise2text.core.errors import Problem
from noise2text.data.builders.dataset import SPLITS, Dataset, Row, kept, left_out
from noise2text.data.builders.raw_files import File, Raw

__all__ = ["TATOEBA", "components", "translations"]

NAME = "deu.txt"


def translations(raw: Raw, *, held_out: int) -> Iterator[Row]:
    """German with English, `held_out` pairs each for validation and test."""
    seen: dict[tuple[str, str], None] = {}
    for place, text in raw.lines(NAME):
        columns = text.split("\t")
        if len(columns) < 2:
            raise Problem(f"{place} has no tab; a line is English TAB German TAB attribution.")
        pair = (columns[1], columns[0])
        if not all(side.strip() for side in pair):
            yield left_out("an empty side")
            continue
        if pair in seen:
            yield left_out("seen before")
        seen[pair] = None
    pairs = list(seen)
    splits = _split(pairs, held_out)
    for split in SPLITS:
        yield from (
            kept(split, src, trg) for (src, trg), own in zip(pairs, splits, strict=True) if own == split
        )


def components(pairs: Sequence[tuple[str, str]]) -> list[int]:
    """A number for each pair, the same for pairs that any chain of shared sentences links."""
    first: dict[str, int] = {}  # the first pair of each sentence, in whichever language
    parents = list(range(len(pairs)))

    def root(place: int) -> int:
        while parents[place] != place:
            parents[place] = parents[parents[place]]
            place = parents[place]
        return place

    for place, sides in enumerate(pairs):
        for sentence in sides:
            earlier = root(first.setdefault(sentence, place))
            parents[max(earlier, root(place))] = min(earlier, root(place))
    return [root(place) for place in range(len(pairs))]


def _split(pairs: Sequence[tuple[str, str]], held_out: int) -> list[str]:
    """The split of each pair: components in a fixed random order, each held out where it still fits."""
    roots = components(pairs)
    sizes: dict[int, int] = {}
    for root in roots:
        sizes[root] = sizes.get(root, 0) + 1
    order = list(sizes)
    random.Random("tatoeba").shuffle(order)
    room = {"valid": held_out, "test": held_out}
    chosen: dict[int, str] = {}
    for root in order:
        for split, left in room.items():
            if sizes[root] <= left:
                chosen[root] = split
                room[split] -= sizes[root]
                break
    return [chosen.get(root, "train") for root in roots]


TATOEBA = Dataset(
    name="tatoeba",
    task="translation, German to English",
    papers=(),
    files=(File(NAME, "https://www.manythings.org/anki/deu-eng.zip"),),
    sizes=(),
    licence="CC BY 2.0 FR",
    rules=(
        "the second column is the source, the first the target; a pair counts once; case is kept",
        "pairs that share sentences, directly or by a chain, are in one split",
        "2,000 pairs each are validation and test, from a fixed random order; the rest is training",
    ),
    rows=partial(translations, held_out=2_000),
)
