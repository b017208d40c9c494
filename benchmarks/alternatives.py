"""Compare rankings of alternatives on one file of candidates, for sources with several references.

    python benchmarks/alternatives.py group pairs.jsonl --out several
    noise2text generate de-en --input several/tune.jsonl --n 5 --output out.jsonl --json
    python benchmarks/alternatives.py rank out.jsonl --ref several/tune.jsonl

`separate` holds groups of linked paraphrases out of a corpus: texts that are paired, directly or through
others, are one group. several.jsonl has the pairs of --groups groups of at least five texts, for `link`;
valid.jsonl has 500 pairs of other groups, train.jsonl the rest, both without texts of over --words words:

    python benchmarks/alternatives.py separate qqp_train.jsonl --words 12 --out qqp
    python benchmarks/alternatives.py link qqp/several.jsonl --words 12 --out several

`group` writes the sources of a corpus that have several targets, half of them to several/tune.jsonl to choose
by, half to several/held.jsonl. `link` does the same for paraphrases such as captions of one picture, whose
pairs are read in both directions: a text is in one row only, and a source has at most --words words. `rank`
ranks the candidates of a file by score and by agreement, with several weights of redundancy (λ) and floors;
the first text is always the selected one. `noise2text evaluate` measures the ranking that was used.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from noise2text.data.corpus import read_pairs, read_references
from noise2text.generation.alternatives import FLOOR, REDUNDANCY_WEIGHT, rank_by_agreement, rank_by_score
from noise2text.generation.mbr import MBR
from noise2text.generation.selection import Candidate
from noise2text.metrics.comparison import format_markdown_table
from noise2text.metrics.evaluate import evaluate_alternatives


def group(path: Path, out: Path) -> None:
    """Write the sources with several targets, in two halves."""
    targets: dict[str, list[str]] = {}
    for pair in read_pairs(str(path)):
        own = targets.setdefault(pair.src, [])
        if pair.trg not in own:
            own.append(pair.trg)
    rows = [{"src": src, "trg": own[0], "refs": own[1:]} for src, own in targets.items() if len(own) > 1]
    _write_halves(rows, out)


def link(path: Path, out: Path, *, words: int) -> None:
    """Write the texts that are paired with several others, in two halves that share no text."""
    linked: dict[str, list[str]] = {}
    for pair in read_pairs(str(path)):
        for text, other in ((pair.src, pair.trg), (pair.trg, pair.src)):
            own = linked.setdefault(text, [])
            if other != text and other not in own:
                own.append(other)
    rows, used = [], set[str]()
    for text in sorted(linked, key=lambda text: (-len(linked[text]), text)):
        own = linked[text]
        if len(own) > 1 and len(text.split()) <= words and used.isdisjoint([text, *own]):
            rows.append({"src": text, "trg": own[0], "refs": own[1:]})
            used.update([text, *own])
    _write_halves(rows, out)


def separate(path: Path, out: Path, *, words: int, groups: int, validation: int = 500) -> None:
    """Write the pairs of some groups of at least five linked texts, and those of all others for training."""
    pairs = [pair for pair in read_pairs(str(path)) if pair.src != pair.trg]
    parents: dict[str, str] = {}

    def find(text: str) -> str:
        while parents.setdefault(text, text) != text:
            parents[text] = text = parents[parents[text]]
        return text

    for pair in pairs:
        parents[find(pair.src)] = find(pair.trg)
    members: dict[str, list[str]] = {}
    for text in list(parents):
        members.setdefault(find(text), []).append(text)
    roots = sorted(members)
    random.Random(0).shuffle(roots)
    held = set([root for root in roots if len(members[root]) >= 5][:groups])
    short = [pair for pair in pairs if max(len(pair.src.split()), len(pair.trg.split())) <= words]
    others = [root for root in dict.fromkeys(find(pair.src) for pair in short) if root not in held]
    valid = set(random.Random(1).sample(others, min(len(others) // 10, validation)))
    out.mkdir(parents=True, exist_ok=True)
    parts = {
        "several": [pair for pair in pairs if find(pair.src) in held],
        "valid": [pair for pair in short if find(pair.src) in valid][:validation],
        "train": [pair for pair in short if find(pair.src) not in held | valid],
    }
    for name, part in parts.items():
        lines = [json.dumps({"src": pair.src, "trg": pair.trg}, ensure_ascii=False) + "\n" for pair in part]
        (out / f"{name}.jsonl").write_text("".join(lines))
        print(f"{out / name}.jsonl: {len(part)} pairs")


def _write_halves(rows: list[dict[str, Any]], out: Path) -> None:
    random.Random(0).shuffle(rows)
    out.mkdir(parents=True, exist_ok=True)
    half = len(rows) // 2
    for name, part in (("tune", rows[:half]), ("held", rows[half:])):
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in part]
        (out / f"{name}.jsonl").write_text("".join(lines))
        print(f"{out / name}.jsonl: {len(part)} sources with several references")


def rankings() -> Iterator[tuple[str, Callable[..., list[int]]]]:
    """The rankings by name."""
    for floor in (FLOOR, math.inf):
        yield f"score, floor {floor:g}", partial(rank_by_score, floor=floor)
    for utility in ("bleu", "chrf", "unigram"):
        for weight in (0.0, 0.2, 0.4):
            mbr = MBR(utility=utility)
            name = f"{utility}, λ = {weight:g}"
            yield name, partial(rank_by_agreement, mbr=mbr, redundancy_weight=weight)
    for floor in (1.0, 2.0, 3.0, math.inf):
        yield f"bleu, λ = {REDUNDANCY_WEIGHT:g}, floor {floor:g}", partial(rank_by_agreement, floor=floor)


def rank(path: Path, references: Path, *, n: int) -> None:
    """Print what each ranking of the same candidates is worth."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    right = read_references(str(references))[: len(rows)]
    names = ["best", *(f"quality_{k + 1}" for k in range(n)), "right", "nearly_right", "different"]
    table = [["ranking", *names]]
    for name, ranking in rankings():
        found = evaluate_alternatives([_order(row, ranking, n) for row in rows], right)
        table.append([name, *(f"{found[each]['score']:.2f}" for each in names)])
    print(format_markdown_table(table))


def _order(row: dict[str, Any], ranking: Callable[..., list[int]], n: int) -> list[str]:
    scores = (-math.inf if each["score"] is None else each["score"] for each in row["candidates"])
    pairs = zip(row["candidates"], scores, strict=True)
    candidates = [Candidate(each["text"], (), score) for each, score in pairs]
    selected = [each.text for each in candidates].index(row["text"])
    return [candidates[i].text for i in ranking(candidates, selected, n=n)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    grouping = commands.add_parser("group")
    grouping.add_argument("pairs", type=Path)
    grouping.add_argument("--out", type=Path, required=True)
    linking = commands.add_parser("link")
    linking.add_argument("pairs", type=Path)
    linking.add_argument("--out", type=Path, required=True)
    linking.add_argument("--words", type=int, default=14)
    separating = commands.add_parser("separate")
    separating.add_argument("pairs", type=Path)
    separating.add_argument("--out", type=Path, required=True)
    separating.add_argument("--words", type=int, default=12)
    separating.add_argument("--groups", type=int, default=600)
    ranking_parser = commands.add_parser("rank")
    ranking_parser.add_argument("candidates", type=Path)
    ranking_parser.add_argument("--ref", type=Path, required=True)
    ranking_parser.add_argument("--n", type=int, default=5)
    given = parser.parse_args()
    if given.command == "group":
        group(given.pairs, given.out)
    elif given.command == "link":
        link(given.pairs, given.out, words=given.words)
    elif given.command == "separate":
        separate(given.pairs, given.out, words=given.words, groups=given.groups)
    else:
        rank(given.candidates, given.ref, n=given.n)
