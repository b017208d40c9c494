"""MBR by counting all pairs at once, against the published habit: a loop over pairs with nltk or sacrebleu.

    python benchmarks/mbr.py [--sentences 1000] [--words 25]

The candidates of a sentence are noisy copies of it: a tenth of the words is dropped and a fifth replaced.
Both ways choose among the same candidates, in one run and with one thread; times are CPU seconds. The loop
scores each pair with its library and sums exactly; its choices must be ours. Ours are timed on sentences and
vocabularies that they have not met before; the median of three sets is shown.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy reads them

from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from sacrebleu.metrics import BLEU, CHRF

from noise2text.generation.mbr import MBR
from noise2text.generation.selection import Candidate

Sentences = list[list[Candidate]]
Score = Callable[[str, str], float]

VOCABULARY = 5000


def noisy_copies(rng: random.Random, sentences: int, candidates: int, words: int) -> Sentences:
    """Sentences of words whose frequency falls with their rank, and their candidates."""
    letters = "etaoinshrdlu"
    vocabulary = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(VOCABULARY)]
    frequency = [1 / (rank + 3) for rank in range(VOCABULARY)]

    def copy(sentence: list[str]) -> str:
        draws = [rng.random() for _ in sentence]
        others = rng.choices(vocabulary, frequency, k=len(sentence))
        words = zip(sentence, others, draws, strict=True)
        return " ".join(other if draw < 0.3 else word for word, other, draw in words if draw > 0.1)

    made = (rng.choices(vocabulary, frequency, k=words) for _ in range(sentences))
    return [[Candidate(copy(sentence), (), 0.0) for _ in range(candidates)] for sentence in made]


def nltk_bleu() -> Score:
    """nltk's sentence BLEU with smoothing 4."""
    smoothing = SmoothingFunction().method4
    return lambda ours, theirs: sentence_bleu([theirs.split()], ours.split(), smoothing_function=smoothing)


def sacrebleu_bleu() -> Score:
    """sacrebleu's sentence BLEU."""
    bleu = BLEU(effective_order=True)
    return lambda ours, theirs: float(bleu.sentence_score(ours, [theirs]).score)


def sacrebleu_chrf() -> Score:
    """sacrebleu's chrF."""
    chrf = CHRF()
    return lambda ours, theirs: float(chrf.sentence_score(ours, [theirs]).score)


LOOPS = {"bleu-nltk4": nltk_bleu, "bleu": sacrebleu_bleu, "chrf": sacrebleu_chrf}


def loop(sentences: Sentences, score: Score) -> list[int]:
    """The choices by the double loop over a sentence's candidates."""
    chosen = []
    for candidates in sentences:
        texts = [candidate.text for candidate in candidates]
        sums = [math.fsum(score(ours, theirs) for theirs in texts) for ours in texts]
        chosen.append(sums.index(max(sums)))
    return chosen


def timed(work: Callable[[], list[int]]) -> tuple[float, list[int]]:
    start = time.process_time()
    chosen = work()
    return time.process_time() - start, chosen


def ours(rule: MBR, several: Sequence[Sentences]) -> tuple[float, list[int]]:
    """The median time over several sets of sentences, and the choices in the first."""
    runs = [timed(partial(rule.select_all, sentences)) for sentences in several]
    return statistics.median(seconds for seconds, _ in runs), runs[0][1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--words", type=int, default=25)
    arguments = parser.parse_args()
    rng = random.Random(0)
    count, words = arguments.sentences, arguments.words
    few = [noisy_copies(rng, count, 10, words) for _ in range(3)]
    many = [noisy_copies(rng, count, 50, words) for _ in range(3)]
    print(f"{count:,} sentences of {words} words, one thread, CPU seconds")
    print(f"{'utility':12}{'loop, × 10':>12}{'ours, × 10':>12}{'ratio':>8}{'same':>13}{'ours, × 50':>12}")
    for name, peer in LOOPS.items():
        rule = MBR(utility=name)
        rule.select_all(noisy_copies(rng, 10, 10, words))  # imports, and warms up
        fast, chosen = ours(rule, few)
        alone, _ = ours(rule, many)
        slow, expected = timed(partial(loop, few[0], peer()))
        same = sum(map(int.__eq__, chosen, expected))
        print(
            f"{name:12}{slow:12.2f}{fast:12.3f}{slow / fast:8.1f}{f'{same:,}/{count:,}':>13}{alone:12.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
