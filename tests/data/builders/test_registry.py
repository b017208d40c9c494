"""Every dataset documents its files, sizes, license and processing."""

from __future__ import annotations

import pytest

from noise2text.core.errors import Problem
from noise2text.data.builders.dataset import Dataset
from noise2text.data.builders.registry import DATASETS, find_dataset

# Difformer, table 20, and SeqDiffuSeq, table 4, copied from the papers a second time.
DIFFORMER = {
    "wmt14-prepared": (4_500_966, 3_000, 3_003),
    "wmt16": (608_319, 1_999, 1_999),
    "wmt16-prepared": (608_319, 1_999, 1_999),
    "iwslt14": (160_215, 7_282, 6_750),
    "gigaword": (3_803_957, 189_651, 1_951),
    "qqp": (144_715, 2_048, 2_500),
    "wiki-auto": (677_751, 2_048, 5_000),
    "quasar-t": (116_953, 2_048, 10_000),
}
SEQDIFFUSEQ = {
    "qqp": (144_715, 2_048, 2_500),
    "quasar-t": (116_953, 2_048, 10_000),
    "wiki-auto": (677_751, 2_048, 5_000),
    "commonsense-conversation": (3_382_137, 2_048, 10_000),
    "iwslt14": (160_239, 7_283, 6_750),
    "wmt14": (4_475_414, 45_206, 3_003),
}


@pytest.mark.parametrize(
    "table, rows", [("Difformer, table 20", DIFFORMER), ("SeqDiffuSeq, table 4", SEQDIFFUSEQ)]
)
def test_the_sizes_are_the_papers(table: str, rows: dict[str, tuple[int, int, int]]) -> None:
    ours = {
        name: (sizes.train, sizes.valid, sizes.test)
        for name, dataset in DATASETS.items()
        for sizes in dataset.sizes
        if table in sizes.reference
    }
    assert ours == rows


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=lambda dataset: dataset.name)
def test_a_dataset_names_its_files_addresses_license_and_rules(dataset: Dataset) -> None:
    names = [file.name for file in dataset.files]
    assert names
    assert len(set(names)) == len(names)
    assert all("http" in file.url or "archive" in file.url for file in dataset.files)
    assert dataset.task
    assert dataset.license
    assert dataset.processing_steps


def test_a_typo_is_answered_with_the_name_that_was_meant() -> None:
    with pytest.raises(Problem, match="did you mean tatoeba"):
        find_dataset("tatoba")
    with pytest.raises(Problem, match="there are qqp, wiki-auto"):
        find_dataset("xyzzy")
