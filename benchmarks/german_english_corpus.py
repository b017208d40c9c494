"""The training pairs of the shipped model de-en: Tatoeba and Europarl, and variants that teach it to copy.

    python benchmarks/german_english_corpus.py OUT --tatoeba FILE... --europarl FILE [--sentences 0]

OUT/raw.jsonl has the pairs in a random order, OUT/variants.jsonl changed copies of some of them, and
OUT/tatoeba.jsonl those of Tatoeba. `--sentences` reads only so many pairs of each file, to try things out.

The variants, drawn with a fixed seed:

    names      a name that both sides share becomes another, mostly one of Europarl: it can only be copied
    numbers    a number that both sides share becomes another
    case       a source in lower case or in capitals; the target stays as it is
    marks      source and target without their final mark
    umlauts    a source that is spelled with ae, oe, ue and ss instead of umlauts and ß
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random

from noise2text.data.corpus import Pair, read_pairs

NAME = re.compile(r"(?<=[\w,] )[A-ZÄÖÜ][a-zäöüß]{2,}(?=[ ,.!?]|s\b|'s\b)")  # not at the start of a sentence
FIRST_NAME = re.compile(r"^[A-Z][a-z]{2,}(?= )")
NUMBER = re.compile(r"(?<![\w.,])\d{1,4}(?![\w%]|[.,]\d)")
ASCII_SPELLING = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"})
MAX_RATIO = 2.5  # of the lengths in characters; longer ones are mostly aligned wrongly


def read_clean_pairs(paths: Iterable[str], limit: int) -> list[Pair]:
    """The pairs of the files whose sides are not of very different lengths, each once."""
    found: dict[Pair, None] = {}
    for path in paths:
        for number, pair in enumerate(read_pairs(path)):
            if limit and number >= limit:
                break
            short, long = sorted((len(pair.src) + 15, len(pair.trg) + 15))
            if long <= MAX_RATIO * short:
                found[Pair(" ".join(pair.src.split()), " ".join(pair.trg.split()))] = None
    return list(found)


def collect_names(pairs: Iterable[Pair]) -> list[str]:
    """Capitalized words that stand on both sides of pairs, but that are no words of either language.

    English writes names with a capital, but nouns without: a word that is never written in lower case in
    English, and that the German side has as well, is most likely a name.
    """
    shared: set[str] = set()
    lower: set[str] = set()
    for pair in pairs:
        shared |= set(NAME.findall(pair.src)) & set(NAME.findall(pair.trg))
        lower |= set(re.findall(r"\b[a-z]{3,}\b", pair.trg))
    return sorted(name for name in shared if name.lower() not in lower)


def find_shared_names(pair: Pair) -> set[str]:
    """The names that a pair has once on each side."""
    found = [set(NAME.findall(side)) | set(FIRST_NAME.findall(side)) for side in (pair.src, pair.trg)]
    return {
        name
        for name in found[0] & found[1]
        if len(re.findall(rf"\b{name}", pair.src)) == len(re.findall(rf"\b{name}", pair.trg)) == 1
    }


def replace_word(pair: Pair, old: str, new: str) -> Pair:
    """The pair with another word on both sides."""
    pattern = re.compile(rf"(?<![\w.,]){re.escape(old)}")
    return Pair(pattern.sub(new, pair.src, count=1), pattern.sub(new, pair.trg, count=1))


def draw_number(old: str, random: Random) -> str:
    """A number of as many digits, which does not begin with 0; for a year, another year."""
    if len(old) == 4 and old < "2100":
        return str(random.randrange(1000, 2100))
    return str(random.randrange(10 ** (len(old) - 1) + (len(old) == 1), 10 ** len(old)))


def make_variants(pairs: Sequence[Pair], names: Sequence[str], random: Random) -> Iterator[Pair]:
    """Changed copies of some of the pairs."""
    known = set(names)
    for pair in pairs:
        for name in sorted(find_shared_names(pair) & known)[:1]:
            yield replace_word(pair, name, random.choice(names))
        numbers = [set(NUMBER.findall(side)) for side in (pair.src, pair.trg)]
        for number in sorted(numbers[0] & numbers[1])[:1]:
            yield replace_word(pair, number, draw_number(number, random))
        chance = random.random()
        if chance < 0.04:
            yield Pair(pair.src.lower(), pair.trg)
        elif chance < 0.06:
            yield Pair(pair.src.upper(), pair.trg)
        elif chance < 0.10 and pair.src[-1] in ".!?" and pair.trg[-1] in ".!?":
            yield Pair(pair.src[:-1].rstrip(), pair.trg[:-1].rstrip())
        spelled = pair.src.translate(ASCII_SPELLING)
        if spelled != pair.src and random.random() < 0.25:
            yield Pair(spelled, pair.trg)


def write(path: Path, pairs: Iterable[Pair]) -> None:
    """Write the pairs as JSON Lines."""
    rows = ({"src": pair.src, "trg": pair.trg} for pair in pairs)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--tatoeba", nargs="+", required=True)
    parser.add_argument("--europarl", nargs="+", required=True)
    parser.add_argument("--sentences", type=int, default=0)
    options = parser.parse_args()
    random = Random(0)
    tatoeba = read_clean_pairs(options.tatoeba, options.sentences)
    europarl = read_clean_pairs(options.europarl, options.sentences)
    names = collect_names([*tatoeba, *europarl])
    variants = list(make_variants([*tatoeba, *europarl], names, random))
    raw = [*tatoeba, *europarl]
    random.shuffle(raw)
    random.shuffle(variants)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, pairs in (("tatoeba", tatoeba), ("raw", raw), ("variants", variants)):
        write(options.out / f"{name}.jsonl", pairs)
        print(f"{name}: {len(pairs):,} pairs")
    print(f"{len(names):,} names, such as {', '.join(random.sample(names, min(8, len(names))))}")


if __name__ == "__main__":
    main()
