"""Corpus scores equal sacrebleu's own, exact match and lengths equal hand counts, and mistakes are named."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF

from noise2text.core.errors import Problem
from noise2text.metrics.evaluate import (
    DEFAULT_METRICS,
    METRICS_BY_NAME,
    bleu,
    chrf,
    evaluate,
    evaluate_diversity,
    exact_match,
    find_metrics,
)
from noise2text.metrics.score_table import collect_score_rows

words = st.sampled_from(
    ["the", "cat", "sat", "on", "mat", ".", "it's", "3.5", "שלום", "مرحبا", "👩‍👩‍👧", "北京"]
)
texts = st.one_of(st.lists(words, max_size=9).map(" ".join), st.text(max_size=12))
corpora = st.lists(st.tuples(texts, st.lists(texts, min_size=1, max_size=3)), min_size=1, max_size=6)


@given(corpora)
@settings(deadline=None, max_examples=60)
def test_scores_equal_sacrebleu_on_padded_reference_streams(corpus: list[tuple[str, list[str]]]) -> None:
    hypotheses, references = [text for text, _ in corpus], [own for _, own in corpus]
    streams: Any = [[own[k] if k < len(own) else None for own in references] for k in range(3)]
    for ours, metric in ((bleu, BLEU()), (chrf, CHRF())):
        score = ours(hypotheses, references)
        # A stream that is None for every sentence is no reference at all.
        assert score.score == pytest.approx(metric.corpus_score(hypotheses, streams).score, rel=1e-12)
        assert score.signature == str(metric.get_signature())


def test_one_reference_equals_the_plain_functions_of_sacrebleu() -> None:
    hypotheses = ["the cat sat on the mat .", "it is raining", "Grüße aus Köln"]
    references = ["the cat is on the mat .", "it was raining", "Grüße aus Köln"]
    result = evaluate(hypotheses, [[reference] for reference in references])
    assert result["bleu"]["score"] == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    assert result["chrf"]["score"] == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [references]).score)
    assert result["bleu"]["signature"] == (
        f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    )
    assert result["chrf"]["signature"].startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|")


def test_bleu_by_hand() -> None:
    # Matches 5/6, 3/5, 2/4, 1/3 of orders 1 to 4, lengths equal: 100 · (5·3·2·1 / (6·5·4·3))^¼.
    score = bleu(["the cat sat on the mat"], [["the cat sat on a mat"]]).score
    assert score == pytest.approx(100 * (30 / 360) ** 0.25)


def test_a_different_number_of_references_is_in_every_signature() -> None:
    result = evaluate(["a b", "c d"], [["a b", "x"], ["c d"]])
    assert all(result[name]["signature"].startswith("nrefs:var|") for name in ("bleu", "chrf", "exact_match"))


@pytest.mark.parametrize(
    ("hypothesis", "references", "percent"),
    [
        ("a b", ["a b"], 100),
        ("a b", ["x", "a b"], 100),
        ("  a b\t", ["a b\n"], 100),
        ("a  b", ["a b"], 0),
        ("A b", ["a b"], 0),
        ("", [""], 100),
        ("", ["a"], 0),
        ("caf\u00e9", ["cafe\u0301"], 0),
        ("👍🏽", ["👍🏽"], 100),
        ("👍🏽", ["👍"], 0),
        ("שלום עולם", ["שלום עולם"], 100),
        ("עולם שלום", ["שלום עולם"], 0),
    ],
)
def test_exact_match_forgives_outer_white_space_only(
    hypothesis: str, references: list[str], percent: int
) -> None:
    assert exact_match([hypothesis], [references]).score == percent


def test_exact_match_is_a_percentage_of_the_sentences() -> None:
    score = exact_match(["a", "b", "c"], [["a"], ["x"], ["c"]])
    assert score.score == pytest.approx(200 / 3)
    assert score.signature == "nrefs:1|case:mixed|unicode:as-is|space:strip-outer"


def test_a_perfect_output_scores_100_everywhere() -> None:
    texts = ["the cat sat on the mat", "2024-02-29", "مرحبا بك في بيتنا", "👩‍👩‍👧 👍 🎉 🎈"]
    result = evaluate(texts, [[text] for text in texts])
    assert [result[name]["score"] for name in ("bleu", "chrf", "exact_match")] == pytest.approx([100] * 3)
    assert {unit: mean["ratio"] for unit, mean in result["lengths"].items()} == {"characters": 1, "words": 1}


def test_lengths_by_hand() -> None:
    lengths = evaluate(["ab cd", ""], [["abc", "a b c d e"], ["x y"]])["lengths"]
    assert lengths["characters"] == {"hypothesis": 2.5, "reference": (6 + 3) / 2, "ratio": 2.5 / 4.5}
    assert lengths["words"] == {"hypothesis": 1, "reference": (3 + 2) / 2, "ratio": 1 / 2.5}


def test_empty_references_have_no_length_ratio() -> None:
    result = evaluate(["a"], [[""]])
    assert result["lengths"]["words"]["ratio"] is None
    (words,) = (line for line in collect_score_rows(result) if line.name == "words")
    assert (words.value, words.signature) == ("1.00", "mean|reference:0.00|ratio:none")


@given(corpora)
@settings(deadline=None, max_examples=30)
def test_the_baseline_is_the_evaluation_of_the_sources(corpus: list[tuple[str, list[str]]]) -> None:
    sources, references = [text for text, _ in corpus], [own for _, own in corpus]
    hypotheses = ["a hypothesis", *sources[1:]]
    baseline = evaluate(hypotheses, references, sources)["copy_source"]
    alone = evaluate(sources, references)
    assert baseline == {name: alone[name] for name in ("bleu", "chrf", "exact_match")}


def test_copied_is_the_share_of_hypotheses_equal_to_their_source() -> None:
    result = evaluate(["a", " b ", "c", "d"], [["x"]] * 4, ["a", "b", "y", "c"])
    assert result["copied"] == 0.5
    assert "copied" not in evaluate(["a"], [["x"]])
    assert "copy_source" not in evaluate(["a"], [["x"]])


def test_the_result_survives_json_and_prints_the_same_table() -> None:
    result = evaluate(
        ["the cat sat", "on a mat"], [["the cat sat", "a cat"], ["on the mat"]], ["le chat", "x"]
    )
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    rows = collect_score_rows(json.loads(json.dumps(result)))
    assert rows == collect_score_rows(result)
    assert [line.name for line in rows] == [
        *("BLEU", "chrF", "exact match", "characters", "words", "sentences"),
        *("BLEU of the source", "chrF of the source", "exact match of the source", "copied"),
        *("BLEU against the source", "iBLEU"),
        *("BLEU against the source, by the references", "exact copies, by the references"),
    ]
    assert (rows[2].value, rows[2].signature) == ("50.00", result["exact_match"]["signature"])
    assert (rows[0].value, rows[0].signature) == (
        f"{result['bleu']['score']:.2f}",
        result["bleu"]["signature"],
    )


def test_every_metric_is_in_the_table() -> None:
    result = evaluate(["a"], [["a"]])
    signatures = {line.signature for line in collect_score_rows(result)}
    assert all(metric(["a"], [["a"]]).signature in signatures for metric in DEFAULT_METRICS)


def test_any_metrics_can_be_asked_for_by_name() -> None:
    names = "bleu-lc, chrf++,TER,exact-match,sari"
    result = evaluate(["a b"], [["a b"]], ["a c"], metrics=find_metrics(names))
    asked = ["bleu-lc", "chrf++", "ter", "exact_match", "sari"]
    assert list(result)[:5] == asked
    assert list(result["copy_source"]) == asked
    named: Any
    mixed = ["bleu-lc", METRICS_BY_NAME["chrf++"], "TER", "exact-match", "sari"]
    for named in (names.split(","), mixed, names):
        assert evaluate(["a b"], [["a b"]], ["a c"], metrics=named) == result
    for name in METRICS_BY_NAME:
        assert find_metrics(name) == find_metrics([name]) == (METRICS_BY_NAME[name],)


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        ("bleu,blue", ("'blue'", "chrf++", "bertscore=FOLDER")),
        ("bertscore", ("bertscore=FOLDER",)),
        ("bleu=x", ("no metric 'bleu'",)),
        (["bleu", "blue"], ("'blue'", "chrf++", "bertscore=FOLDER")),
        ([3], ("a name, not 3", "chrf++", "bertscore=FOLDER")),
        ([], ("is empty",)),
        ("", ("is empty",)),
        (None, ("['bleu', 'chrf']", "not None")),
    ],
)
def test_a_mistyped_metric_is_named(names: Any, parts: tuple[str, ...]) -> None:
    with pytest.raises(Problem) as problem:
        find_metrics(names)
    assert all(part in str(problem.value) for part in parts)


def test_with_draws_every_score_has_an_interval_around_it() -> None:
    texts = ["the cat sat on the mat", "a dog barks at the moon", "one", ""]
    references = [["the cat sat on a mat"], ["a dog barks at me"], ["one"], ["two"]]
    result = evaluate(texts, references, texts, metrics=tuple(METRICS_BY_NAME.values()), n_resamples=200)
    for part in (*(result[name] for name in METRICS_BY_NAME), result["copying"]["ibleu"]):
        assert part["interval"]["low"] <= part["score"] <= part["interval"]["high"]
    assert result["bleu"]["interval"]["low"] < result["bleu"]["interval"]["high"]
    varied = evaluate_diversity([["a b", "a c"], ["d e", "d e"], ["f", "g"]], n_resamples=200)
    assert varied["distinct"]["interval"]["low"] < varied["distinct"]["score"]
    assert "interval" not in evaluate(texts, references)["bleu"]


@pytest.mark.parametrize(
    ("hypotheses", "references", "sources", "parts"),
    [
        (["a", "b", "c"], [["a"], ["b"]], None, ("3 hypotheses", "2 references")),
        (["a", "b"], [["a"], ["b"]], ["a"], ("2 hypotheses", "1 sources")),
        ([], [], None, ("nothing to evaluate",)),
        (["a", "b"], [["a"], []], None, ("Sentence 2 has no reference",)),
        (["a"], ["a"], None, ("Sentence 1", "give a list")),
        (None, [["a"]], None, ("evaluate takes a list of texts, not None",)),
        ("a", [["a"]], None, ("put the one text into a list",)),
        ([1], [["a"]], None, ("its item 1 is 1",)),
        (["a"], None, None, ("references are a list with one item per sentence, not None",)),
        (["a"], [[1]], None, ("Sentence 1, in its references,", "its item 1 is 1")),
        (["a"], [["a"]], [None], ("its item 1 is None",)),
    ],
)
def test_mistakes_are_named(hypotheses: Any, references: Any, sources: Any, parts: tuple[str, ...]) -> None:
    with pytest.raises(Problem) as problem:
        evaluate(hypotheses, references, sources)
    message = str(problem.value)
    assert all(part in message for part in parts)
    assert "\n" not in message


def test_importing_needs_neither_torch_nor_sacrebleu() -> None:
    code = "import sys, noise2text.metrics.evaluate; print({'torch', 'sacrebleu'} & sys.modules.keys())"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"
