"""The one table of datasets, by name."""

from __future__ import annotations

from noise2text.core.errors import Problem, suggest
from noise2text.data.builders.conversation import CONVERSATION
from noise2text.data.builders.covost import COVOST
from noise2text.data.builders.dataset import Dataset
from noise2text.data.builders.iwslt14 import IWSLT14
from noise2text.data.builders.presplit import GIGAWORD, MULTI30K, WMT14_PREPARED, WMT16_PREPARED
from noise2text.data.builders.qqp import QQP
from noise2text.data.builders.quasar_t import QUASAR_T
from noise2text.data.builders.tatoeba import TATOEBA
from noise2text.data.builders.wiki_auto import WIKI_AUTO
from noise2text.data.builders.wmt import WMT14, WMT16

__all__ = ["DATASETS", "find_dataset"]

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        QQP,
        WIKI_AUTO,
        QUASAR_T,
        CONVERSATION,
        GIGAWORD,
        IWSLT14,
        WMT14,
        WMT14_PREPARED,
        WMT16,
        WMT16_PREPARED,
        COVOST,
        TATOEBA,
        MULTI30K,
    )
}


def find_dataset(name: str) -> Dataset:
    """The dataset of that name."""
    if name in DATASETS:
        return DATASETS[name]
    raise Problem(f"There is no dataset {name!r}; {suggest(name, DATASETS)}")
