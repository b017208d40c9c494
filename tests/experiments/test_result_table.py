"""The page says what the numbers say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from scipy.stats import kendalltau, spearmanr

from noise2text.experiments.experiment import Arm, Experiment, ModelSpec
from noise2text.experiments.result_table import tabulate, to_latex, to_markdown

EXPERIMENT = Experiment(
    name="trial",
    paper="a paper",
    table="table 0",
    summary="A line.",
    claim="it is so.",
    metric_note="made up.",
    measures=("bleu", "exact_match", "decoding_seconds"),
    arms=(
        Arm("best & last", ModelSpec("difformer"), paper={"bleu": 30.0}),
        Arm("middle", ModelSpec("difformer"), paper={"bleu": 20.0}),
        Arm("worst", ModelSpec("difformer"), paper={"bleu": 10.0}),
        Arm("unknown", ModelSpec("difformer")),
    ),
)


def record(arm: str, seed: int, bleu: float, exact: float) -> dict[str, Any]:
    numbers = {"bleu": bleu, "exact_match": exact, "decoding_seconds": 1.0}
    signatures = {"bleu": "tok:13a"}
    return {"arm": arm, "seed": seed, "numbers": numbers, "signatures": signatures, "sentences": 7}


RECORDS = [
    record("best & last", 0, 88.0, 50.0),
    record("best & last", 1, 92.0, 50.0),
    record("middle", 0, 70.0, 60.0),
    record("middle", 1, 70.0, 60.0),
    record("worst", 0, 80.0, 70.0),
    {"arm": "worst", "seed": 1, "error": "It broke."},
    {"arm": "unknown", "seed": 0, "error": "It broke, too."},
    {"arm": "unknown", "seed": 1, "error": "It broke, too."},
]


def test_orders_and_their_agreement_are_of_the_arms_that_both_have() -> None:
    found = tabulate(EXPERIMENT, RECORDS, scale="tiny")
    bleu, exact = found["agreement"]
    assert bleu["arms"] == ["best & last", "middle", "worst"]
    assert (bleu["paper_ranks"], bleu["our_ranks"]) == ([1, 2, 3], [1, 3, 2])
    assert (bleu["spearman"], round(bleu["kendall"], 6)) == (0.5, 0.333333)
    assert (exact["ours"], exact["spearman"], exact["kendall"]) == ("exact_match", -1, -1)


def test_the_page_says_which_measure_its_ranks_are_of() -> None:
    page = to_markdown(tabulate(EXPERIMENT, RECORDS, scale="tiny"))
    (line,) = (line for line in page.splitlines() if line.endswith("(the ranks in the table)."))
    assert line.startswith("Our BLEU against the paper's BLEU")
    equal = [record(arm.name, 0, 0.0, float(number)) for number, arm in enumerate(EXPERIMENT.arms)]
    page = to_markdown(tabulate(EXPERIMENT, equal, scale="tiny"))
    (line,) = (line for line in page.splitlines() if line.endswith("(the ranks in the table)."))
    assert line.startswith("Our exact match"), "equal scores have no ranks"


def test_a_row_with_fewer_seeds_than_the_others_says_so() -> None:
    page = to_markdown(tabulate(EXPERIMENT, RECORDS[:5], scale="tiny"))
    assert "- worst has 1 of 2 seeds." in page.splitlines()
    assert "best & last has" not in page
    (row,) = (line for line in page.splitlines() if line.startswith("| unknown"))
    assert "not run" in row


def test_every_measure_of_the_paper_is_compared_as_scipy_does() -> None:
    names = ("bleu-fairseq", "rouge-l", "self_bleu")
    paper = [{"bleu-fairseq": 30.0, "rouge-l": 1.0}, {"bleu-fairseq": 20.0, "rouge-l": 2.0}, {"rouge-l": 3.0}]
    own = [
        {"bleu": 70.0, "rouge-l": 8.0, "exact_match": 3.0},
        {"bleu": 60.0, "rouge-l": 9.0, "exact_match": 4.0},
        {"bleu": 5.0, "rouge-l": 1.0, "exact_match": 5.0},
    ]
    arms = tuple(Arm(f"arm {k}", ModelSpec("difformer"), paper=each) for k, each in enumerate(paper))
    records = [{"arm": f"arm {k}", "seed": 0, "numbers": each, "sentences": 1} for k, each in enumerate(own)]
    table = replace(EXPERIMENT, measures=names, tiny_measures=("bleu", "exact_match", "rouge-l"), arms=arms)
    found = tabulate(table, records, scale="tiny")
    assert [(each["paper"], each["ours"]) for each in found["agreement"]] == [
        ("bleu-fairseq", "bleu"),
        ("bleu-fairseq", "exact_match"),
        ("rouge-l", "rouge-l"),
    ]
    for each in found["agreement"]:
        both = [
            (p[each["paper"]], o[each["ours"]]) for p, o in zip(paper, own, strict=True) if each["paper"] in p
        ]
        first, second = zip(*both, strict=True)
        assert each["spearman"] == pytest.approx(spearmanr(first, second).statistic)
        assert each["kendall"] == pytest.approx(kendalltau(first, second).statistic)
    assert "| BLEU (fairseq), paper |" in to_markdown(found)


def test_a_metric_that_is_a_model_is_asked_for() -> None:
    table = replace(EXPERIMENT, measures=("bleu", "bertscore"))
    page = to_markdown(tabulate(table, RECORDS, scale="full"))
    assert "- BERTScore is not measured: `--metrics bertscore=FOLDER` says with which model." in page
    assert "| BERTScore" not in page


def test_the_page_has_means_spreads_ranks_failures_and_signatures() -> None:
    page = to_markdown(tabulate(EXPERIMENT, RECORDS, scale="tiny"))
    rows = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("|")}
    cells = [cell.strip() for cell in rows["best & last"].split("|")[2:-1]]
    assert cells == ["30.00", "90.00 ± 2.83", "50.0 ± 0.0", "1.00 ± 0.00", "1", "1"]
    assert [cell.strip() for cell in rows["worst"].split("|")[2:4]] == ["10.00", "80.00"]
    assert "failed" in rows["unknown"]
    assert "- worst failed, seed 1: It broke." in page
    assert "Spearman's ρ 0.50, Kendall's τ 0.33" in page
    assert "2 seeds, 7 test texts, mean ± standard deviation" in page
    assert "BLEU: `tok:13a`" in page


def test_latex_escapes_and_keeps_all_rows() -> None:
    page = to_latex(tabulate(EXPERIMENT, RECORDS, scale="tiny"))
    assert r"best \& last & 30.00 & 90.00 $\pm$ 2.83" in page
    odd = Experiment(**(vars(EXPERIMENT) | {"arms": (Arm("F ~ {$2^d$}", ModelSpec("difformer")),)}))
    assert r"F \textasciitilde{} \{\$2\textasciicircum{}d\$\}" in to_latex(tabulate(odd, [], scale="tiny"))
    assert page.count(r"\\") == 5
    assert page.startswith(r"\begin{tabular}{lrrrrrr}")


def test_a_figure_without_numbers_has_no_ranks() -> None:
    arms = tuple(Arm(arm.name, arm.model) for arm in EXPERIMENT.arms)
    found = tabulate(Experiment(**(vars(EXPERIMENT) | {"arms": arms})), RECORDS, scale="tiny")
    assert found["agreement"] == []
    page = to_markdown(found)
    assert "no numbers to rank" in page
    assert "rank" not in page.splitlines()[4]
