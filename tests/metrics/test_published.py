"""The papers' numbers, some of them typed here a second time."""

from __future__ import annotations

import pytest

from noise2text.core.errors import Problem
from noise2text.data.builders.registry import DATASETS
from noise2text.metrics.published import PublishedResult, published, tabulate_published

ANCHORS = [
    ("Difformer", "3", "wmt14-en-de", "Transformer", "b = 5", "BLEU", 27.37),
    ("Difformer", "3", "wmt14-en-de", "Difformer", "b = 20", "BLEU", 27.74),
    ("Difformer", "3", "wmt16-en-ro", "CMLM", "b = 5", "BLEU", 33.08),
    ("Difformer", "3", "iwslt14-de-en", "Difformer", "b = 10", "BLEU", 34.48),
    ("Difformer", "3", "iwslt14-de-en", "SeqDiffuSeq", "b = 10", "BLEU", 30.03),
    ("Difformer", "3", "gigaword", "Difformer", "b = 20", "ROUGE-2", 18.75),
    ("Difformer", "4", "qqp", "Difformer", "b = 20", "BLEU", 30.52),
    ("Difformer", "4", "wiki-auto", "Transformer", "b = 5", "BLEU", 43.86),
    ("Difformer", "4", "quasar-t", "Difformer", "b = 10", "BERTScore", 63.29),
    ("Difformer", "5", "wmt14-en-de", "Difformer", "b = 50", "SacreBLEU", 24.90),
    ("Difformer", "6", "wmt14-en-de", "Difformer", "b = 10", "SacreBLEU", 26.20),
    ("Difformer", "8", "iwslt14-de-en", "DiffuSeq", "K = 500", "BLEU", 0.96),
    ("Difformer", "8", "iwslt14-de-en", "Difformer", "K = 20", "sentences/s", 6.30),
    ("Difformer", "10", "iwslt14-de-en", "Difformer", "", "COMET", 78.75),
    ("SeqDiffuSeq", "2", "wiki-auto", "SeqDiffuSeq", "without both", "BERTScore", 76.06),
    ("SeqDiffuSeq", "2", "iwslt14-en-de", "SeqDiffuSeq", "without the adaptive schedule", "SacreBLEU", 19.89),
    (
        "Discrete Modeling",
        "",
        "iwslt14-de-en",
        "boundary-conditional Difformer",
        "20 steps",
        "BLEU (detokenised)",
        33.42,
    ),
    ("Difformer", "11", "wmt14-en-de", "DA-Transformer", "b = 200", "BLEU", 27.78),
    ("DiffuSeq", "1", "qqp", "DiffuSeq", "MBR of 10", "BLEU", 24.13),
    ("DiffuSeq", "1", "qqp", "NAR-LevT", "", "self-BLEU", 99.95),
    ("DiffuSeq", "1", "commonsense-conversation", "GPT2-large FT", "", "div-4", 99.38),
    ("DiffuSeq", "1", "quasar-t", "Transformer-base", "", "length", 10.3),
    ("DiffuSeq", "1", "wiki-auto", "GPVAE-T5", "", "BLEU", 33.92),
    ("SeqDiffuSeq", "1", "qqp", "SeqDiffuSeq", "MBR of 10", "BLEU", 24.34),
    ("SeqDiffuSeq", "1", "iwslt14-en-de", "SeqDiffuSeq", "", "SacreBLEU", 21.96),
    ("SeqDiffuSeq", "1", "wmt14-de-en", "CDCD", "MBR of 10", "SacreBLEU", 25.40),
    ("SeqDiffuSeq", "1", "wmt14-de-en", "CMLM", "4 iterations", "BLEU", 29.90),
    ("Classifier-free", "4.2", "covost", "DiffuSeq", "distilled targets", "SacreBLEU", 12.5),
    ("Classifier-free", "4.2", "covost", "Transformer", "b = 10", "COMET-QE", 20.2),
]


@pytest.mark.parametrize("anchor", ANCHORS, ids=lambda anchor: "-".join(map(str, anchor[:5])))
def test_a_number_is_the_papers(anchor: tuple[str, str, str, str, str, str, float]) -> None:
    paper, table, task, system, setting, metric, score = anchor
    (row,) = (
        row
        for row in published(task)
        if row.paper.startswith(paper) and (row.table, row.system, row.setting) == (table, system, setting)
    )
    assert {found.metric: found.score for found in row.scores}[metric] == score


def test_every_table_of_the_papers_that_was_promised_is_there() -> None:
    found = {(row.paper.split(" (")[0], row.table) for row in published()}
    difformer = {("Difformer", table) for table in ("3", "4", "5", "6", "8", "10", "11")}
    thesis = "Classifier-free Diffusion Models for Machine Translation"
    others = {("DiffuSeq", "1"), ("SeqDiffuSeq", "1"), ("SeqDiffuSeq", "2"), (thesis, "4.2")}
    assert {each for each in found if each[1]} == difformer | others


def test_a_second_hand_number_says_so() -> None:
    lines = tabulate_published(published("qqp"))
    (rdm,) = (line for line in lines if line[0] == "RDM")
    (difformer,) = (line for line in lines if line[:2] == ["Difformer", "b = 20"])
    assert "second-hand" in rdm[-1]
    assert difformer[-1] == "Difformer (Gao et al., 2024), table 4"


@pytest.mark.parametrize("task", sorted({row.task for row in published()}))
def test_a_task_is_a_dataset_or_one_of_its_directions(task: str) -> None:
    assert any(task == name or task.startswith(f"{name}-") for name in DATASETS)


@pytest.mark.parametrize("row", published(), ids=lambda row: f"{row.table}-{row.task}-{row.system}")
def test_every_row_is_complete_and_in_range(row: PublishedResult) -> None:
    assert row.paper
    assert row.note
    assert row.scores
    for score in row.scores:
        assert 0 < score.score <= 100
        assert "BLEU" not in score.metric or score.about, "a BLEU that does not say which"


def test_no_row_is_there_twice() -> None:
    keys = [(row.paper, row.table, row.task, row.system, row.setting) for row in published()]
    assert len(set(keys)) == len(keys)


def test_what_a_paper_does_not_give_is_an_empty_cell() -> None:
    header, *lines = tabulate_published(published("qqp"))
    found = [line for line in lines if line[:2] == ["DiNoiSer", "b = 10"]]
    assert [line[header.index("BLEU")] for line in found] == ["26.07"]
    assert [line[header.index("ROUGE-L")] for line in found] == [""]


def test_a_mistyped_task_is_named() -> None:
    with pytest.raises(Problem, match=r"'qpp'; there are for .*qqp"):
        published("qpp")
