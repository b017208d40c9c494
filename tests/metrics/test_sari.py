"""SARI equals arithmetic n-gram by n-gram, and published numbers."""

from __future__ import annotations

from statistics import fmean

import pytest
from hypothesis import given, settings
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from noise2text.core.errors import Problem
from noise2text.metrics.metric import Metric
from noise2text.metrics.sari import sari, sari_sentence

from .corpora import Corpus, corpora

# The example of the metric's first released script, and its scores (EASSE's tests have them, too).
SOURCE = "About 95 species are currently accepted ."
REFERENCES = [
    "About 95 species are currently known .",
    "About 95 species are now accepted .",
    "95 species are now accepted .",
]
KNOWN = {
    "About 95 you now get in .": 26.82782411698074,
    "About 95 species are now agreed .": 58.89995423074248,
    "About 95 species are currently agreed .": 50.71608864657479,
}


def grams(text: str, n: int) -> list[str]:
    words = Tokenizer13a()(text.lower()).split()
    return ["\n".join(words[i : i + n]) for i in range(len(words) - n + 1)]


def counted(text: str, source: str, references: list[str], n: int) -> dict[str, list[float]]:
    """For each operation: right, done by the text, done by the references; references weigh 1/r each."""
    s, c, r = grams(source, n), grams(text, n), [grams(one, n) for one in references]
    sums = {"add": [0.0] * 3, "keep": [0.0] * 3, "delete": [0.0] * 3}
    for gram in {*s, *c, *(one for own in r for one in own)}:
        before, after = s.count(gram), c.count(gram)
        wanted = sum(own.count(gram) for own in r) / len(r)
        new, welcome = float(after > 0 and before == 0), float(wanted > 0 and before == 0)
        kept, to_keep = min(before, after), min(before, wanted)
        gone, to_go = max(before - after, 0), max(before - wanted, 0)
        for name, did, should in (
            ("add", new, welcome),
            ("keep", kept, to_keep),
            ("delete", gone, to_go),
        ):
            for place, number in enumerate((min(did, should), did, should)):
                sums[name][place] += number
    return sums


def easse(corpus: Corpus) -> float:
    scores = []
    for n in range(1, 5):
        every = [counted(text, source, own, n) for text, own, source in corpus]
        for name in ("add", "keep", "delete"):
            right, did, should = (sum(one[name][k] for one in every) for k in range(3))
            precision, recall = right / did if did else 0, right / should if should else 0
            scores.append(2 * precision * recall / (precision + recall) if precision + recall else 0)
    return 100 * fmean(scores)


@given(corpora)
@settings(deadline=None, max_examples=60)
def test_sari_is_easses_gram_by_gram(corpus: Corpus) -> None:
    texts, references, sources = ([row[k] for row in corpus] for k in range(3))
    score = sari(texts, references, sources)  # type: ignore[arg-type]
    assert score.score == pytest.approx(easse(corpus), abs=1e-9)
    assert score.signature.startswith("as:EASSE|level:corpus|delete:f1|nrefs:")


@given(corpora)
@settings(deadline=None, max_examples=40)
def test_repeating_every_reference_changes_nothing(corpus: Corpus) -> None:
    texts, sources = [row[0] for row in corpus], [row[2] for row in corpus]
    once, twice = [row[1] for row in corpus], [[*row[1], *row[1]] for row in corpus]
    for metric in (sari, sari_sentence):
        assert metric(texts, twice, sources).score == pytest.approx(metric(texts, once, sources).score)


@pytest.mark.parametrize("text", KNOWN)
def test_sari_of_a_sentence_is_what_the_first_script_says(text: str) -> None:
    score = sari_sentence([text], [REFERENCES], [SOURCE])
    assert score.score == pytest.approx(KNOWN[text], rel=1e-12)
    assert "as:Xu2016|level:sentence|delete:precision|nrefs:3" in score.signature


def test_sari_of_sentences_is_their_mean() -> None:
    texts = list(KNOWN)
    score = sari_sentence(texts, [REFERENCES] * 3, [SOURCE] * 3)
    assert score.score == pytest.approx(fmean(KNOWN.values()))


def test_both_by_hand() -> None:
    """b becomes c. Unigrams: all right. Bigrams: "a b" goes, "a c" comes, none is kept. Nothing longer.

    Add 2/4, keep 1/4, delete 2/4; what cannot be counted is 0.
    """
    for metric in (sari, sari_sentence):
        score = metric(["a c"], [["a c"]], ["a b"])
        assert score.score == pytest.approx(100 * (2 / 4 + 1 / 4 + 2 / 4) / 3)


@pytest.mark.parametrize("metric", [sari, sari_sentence])
def test_edges(metric: Metric) -> None:
    assert metric([""], [[""]], [""]).score == 0
    assert metric(["שלום 👍🏽"], [["שלום 👍🏽"]], ["שלום"]).score > 0
    assert metric(["one"], [["one"]], ["one"]).score == pytest.approx(100 / 12)


def test_sari_without_sources_is_a_mistake() -> None:
    with pytest.raises(Problem, match=r"metric sari .* --src"):
        sari(["a"], [["a"]])
