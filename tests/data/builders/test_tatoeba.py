"""Tatoeba: no sentence of validation or test is anywhere in training."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from noise2text.core.errors import Problem
from noise2text.data.builders.tatoeba import NAME, link_components, read_translations

from .conftest import Write, splits


def line(english: str, german: str) -> str:
    return f"{english}\t{german}\tCC-BY 2.0 (France) Attribution: tatoeba.org #1 & #2\n"


@given(st.lists(st.tuples(st.sampled_from("abcdefghij"), st.sampled_from("uvwxyzabc")), max_size=20))
def test_components_are_those_of_the_graph_of_sentences(pairs: list[tuple[str, str]]) -> None:
    names = sorted({sentence for pair in pairs for sentence in pair})
    edges = [(names.index(src), names.index(trg)) for src, trg in pairs]
    rows, columns = [src for src, _ in edges], [trg for _, trg in edges]
    graph = coo_array(([1] * len(edges), (rows, columns)), shape=(len(names), len(names)))
    labels = connected_components(graph, directed=False)[1] if names else []
    ours = link_components(pairs)
    for one, (src, _) in enumerate(pairs):
        for other, (also, _) in enumerate(pairs):
            assert (ours[one] == ours[other]) == (labels[names.index(src)] == labels[names.index(also)])


def test_linked_sentences_stay_together_and_pairs_count_once(write: Write) -> None:
    texts = [line(f"e{place}", f"d{place}") for place in range(30)]
    texts += [
        line("e0", "other"),
        line("Hi", "other"),
        line("Hi", "Hallo"),
        line("e1", "d1"),
        line("d7", "x"),
    ]
    rows = list(read_translations(write({NAME: "".join(texts)}), held_out=6))
    found = splits(rows)
    assert {split: len(pairs) for split, pairs in found.items()} == {"train": 22, "valid": 6, "test": 6}
    assert [row.reason for row in rows if row.pair is None] == ["seen before"]
    sentences = {split: {side for pair in pairs for side in pair} for split, pairs in found.items()}
    assert not sentences["train"] & (sentences["valid"] | sentences["test"])
    assert not sentences["valid"] & sentences["test"]


def test_german_is_the_source_and_training_keeps_the_order_of_the_file(write: Write) -> None:
    texts = "".join(line(f"e{place}", f"d{place}") for place in range(20))
    pairs = splits(read_translations(write({NAME: texts}), held_out=2))["train"]
    places = [int(src.removeprefix("d")) for src, _ in pairs]
    assert places == sorted(places)
    assert all(trg == f"e{place}" for place, (_, trg) in zip(places, pairs, strict=True))


def test_the_split_is_the_same_every_time(write: Write) -> None:
    raw = write({NAME: "".join(line(f"e{place}", f"d{place}") for place in range(50))})
    assert list(read_translations(raw, held_out=5)) == list(read_translations(raw, held_out=5))


def test_the_old_form_of_the_file_has_no_attribution(write: Write) -> None:
    raw = write({NAME: "Go.\tGeh.\nHi.\tHallo!\nRun!\tLauf!\n"})
    assert sorted(
        pair for pairs in splits(read_translations(raw, held_out=1)).values() for pair in pairs
    ) == [
        ("Geh.", "Go."),
        ("Hallo!", "Hi."),
        ("Lauf!", "Run!"),
    ]


def test_a_line_without_a_tab_is_named(write: Write) -> None:
    with pytest.raises(Problem, match="line 2 has no tab"):
        list(read_translations(write({NAME: "Go.\tGeh.\nHi.\n"}), held_out=1))


def test_a_pair_with_an_empty_side_is_in_no_split(write: Write) -> None:
    texts = "".join(line(f"e{place}", f"d{place}" if place % 3 else "") for place in range(30))
    rows = list(read_translations(write({NAME: texts}), held_out=5))
    found = splits(rows)
    assert {split: len(pairs) for split, pairs in found.items()} == {"train": 10, "valid": 5, "test": 5}
    assert [row.reason for row in rows if row.pair is None] == ["an empty side"] * 10
