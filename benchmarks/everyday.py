"""Score a model on 200 everyday sentences that have several accepted answers each.

    python benchmarks/everyday.py de-en --half tune      # the odd sentences, to choose settings by
    python benchmarks/everyday.py de-en --half held      # the even ones, for the figure that is reported
    python benchmarks/everyday.py de-en --set preprocess=   # without preprocessor

It prints the sentences whose text is none of the accepted ones (case, commas and final marks aside), how
many are accepted, and sacrebleu's BLEU against the first accepted answers.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sacrebleu

import noise2text
from noise2text.core.command_line import parse_assignments

SENTENCES = Path(__file__).parents[1] / "tests" / "models" / "everyday_de_en.txt"
HALVES = {"tune": slice(0, None, 2), "held": slice(1, None, 2), "both": slice(None)}


@dataclass(frozen=True)
class Everyday:
    """A sentence and its accepted answers."""

    source: str
    answers: tuple[str, ...]

    def accepts(self, text: str) -> bool:
        """Whether a text is one of the answers, without case, commas and final marks."""
        return normalize(text) in {normalize(answer) for answer in self.answers}


def read_sentences(path: Path = SENTENCES) -> list[Everyday]:
    """The sentences of the file, in its order."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    pairs = [line.split(" => ") for line in lines]
    return [
        Everyday(source, tuple(answer for part in accepted.split(";") for answer in expand(part.strip())))
        for source, accepted in pairs
    ]


def expand(pattern: str) -> list[str]:
    """All texts of a pattern: (a|b) is either of a and b, also inside each other; ,? may be left out.

    >>> expand("(It's|It is) cold(!|)")
    ["It's cold!", "It's cold", 'It is cold!', 'It is cold']
    """
    pattern = pattern.replace(",?", "(,|)")
    innermost = re.search(r"\(([^()]*)\)", pattern)
    if innermost is None:
        return [re.sub(r" +", " ", pattern).strip()]
    before, after = pattern[: innermost.start()], pattern[innermost.end() :]
    return [text for choice in innermost[1].split("|") for text in expand(before + choice + after)]


def normalize(text: str) -> str:
    """The text in lower case, with plain apostrophes, single spaces, no commas and no marks at its end."""
    text = re.sub(r"\s+", " ", text.lower().replace("’", "'").replace(",", "")).strip()
    return re.sub(r"[.!?]+(?=$| \W*$)", "", text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--half", choices=HALVES, default="tune")
    parser.add_argument("--set", action="append", default=[], help="a generation setting, name=value")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sentences = read_sentences()[HALVES[options.half]]
    model = noise2text.load(options.model, device="cpu")
    settings: dict[str, Any] = parse_assignments(options.set)
    texts = model.generate([each.source for each in sentences], seed=options.seed, **settings).texts
    right = [each.accepts(text) for each, text in zip(sentences, texts, strict=True)]
    for each, text, accepted in zip(sentences, texts, right, strict=True):
        if not accepted:
            print(f"{each.source}  →  {text}  ({each.answers[0]})")
    bleu = sacrebleu.BLEU()
    score = bleu.corpus_score(
        [normalize(text) for text in texts], [[normalize(each.answers[0]) for each in sentences]]
    )
    print(f"{sum(right)} of {len(right)} accepted, BLEU {score.score:.1f}, {bleu.get_signature()}")


if __name__ == "__main__":
    main()
