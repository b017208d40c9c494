"""The papers' numbers for the arms of an experiment, from the published tables (`noise2text published`)."""

from __future__ import annotations

from collections.abc import Mapping

from noise2text.metrics.published import published

__all__ = ["paper_numbers"]


def paper_numbers(
    paper: str, table: str, *, task: str, system: str, setting: str, measures: Mapping[str, str]
) -> dict[str, float]:
    """The numbers of a row, by measure; `measures` has the measure of each of the paper's columns.

    >>> paper_numbers("SeqDiffuSeq (Yuan et al., 2022)", "2", task="iwslt14-de-en", system="SeqDiffuSeq",
    ...     setting="whole", measures={"SacreBLEU": "bleu"})
    {'bleu': 30.16}
    """
    (row,) = (
        row
        for row in published(task)
        if (row.paper, row.table, row.system, row.setting) == (paper, table, system, setting)
    )
    return {measures[score.metric]: score.score for score in row.scores if score.metric in measures}
