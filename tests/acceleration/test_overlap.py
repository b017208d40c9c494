"""Overlapping changes when stages run, never what comes out or in which order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count, islice
from typing import Any

import pytest

from noise2text.acceleration.overlap import overlap
from noise2text.core.config import apply_overrides
from noise2text.generation.decoder import SourceBatch

from ..conftest import Make

Event = tuple[str, int]
BATCHES = [
    SourceBatch([[8, 9, 10], [13, 14]], [0, 1], 3),
    SourceBatch([[20]], [2], 3),
    SourceBatch([[15, 16, 17, 18], [21, 22], [23]], [3, 4, 5], 3),
    SourceBatch([[24, 25]], [6], 3),
]


def record(events: list[Event], name: str, item: int) -> int:
    """A stage that does nothing but leave a record."""
    events.append((name, item))
    return item


@pytest.mark.parametrize("items", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_results_come_in_the_order_of_the_items_and_are_those_of_the_stages_in_turn(
    items: int, stages: int
) -> None:
    functions = [lambda text, name=name: text + name for name in "abcde"[:stages]]
    results = list(overlap(map(str, range(items)), functions))
    assert results == [f"{item}{'abcde'[:stages]}" for item in range(items)]


def test_a_later_item_has_started_before_an_earlier_one_takes_its_next_stage() -> None:
    """A stage waits for the device at its start; by then the next item's work has been sent to it."""
    events: list[Event] = []
    stages = [partial(record, events, name) for name in ("propose", "denoise", "collect")]
    assert list(overlap(range(4), stages)) == [0, 1, 2, 3]
    for item in range(3):
        for earlier, later in (("denoise", "propose"), ("collect", "denoise")):
            assert events.index((later, item + 1)) < events.index((earlier, item))
    for item in range(4):  # every stage of every item runs once, in its turn
        assert [name for name, which in events if which == item] == ["propose", "denoise", "collect"]


def test_items_are_taken_only_as_they_are_needed() -> None:
    taken: list[int] = []

    def endless() -> Iterator[int]:
        for item in count():
            taken.append(item)
            yield item

    stages = [lambda item: item] * 3
    assert list(islice(overlap(endless(), stages), 2)) == [0, 1]
    assert len(taken) <= 2 + len(stages)


def test_a_failing_stage_stops_everything() -> None:
    def fail(item: int) -> int:
        if item == 1:
            raise ValueError("stage")
        return item

    results = overlap(range(3), [fail, lambda item: item])
    with pytest.raises(ValueError, match="stage"):
        list(results)


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize("options", [{}, {"strategy": "token-by-token"}, {"select": "weighted-mbr"}])
def test_overlapping_batches_are_decoded_as_one_by_one(
    options: dict[str, Any], trace: bool, small: Make
) -> None:
    model = small()
    changes = {"steps": 4, "stop_early": 1, "length_beam": 2, "noise_beam": 2} | options
    decoder = model.build_decoder(apply_overrides(model.generation_config, changes, origin="test"))
    overlapped = list(overlap(BATCHES, decoder.stages(trace=trace)))
    assert overlapped == [decoder.decode(batch, trace=trace) for batch in BATCHES]
    assert [len(decoded) for decoded in overlapped] == [2, 1, 3, 1]
