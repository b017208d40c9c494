"""The data order is a pure function; every pair comes once per epoch; shapes are few and full."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noise2text.data.batching import FEW_BUCKETS, MANY_BUCKETS, BatchPlan, bucket_shapes

LENGTHS = np.random.default_rng(0).integers(1, 60, (3000, 2)).astype(np.int32)


def test_every_pair_comes_once_and_only_the_last_batch_repeats_some() -> None:
    plan = BatchPlan(LENGTHS, max_tokens=1000, seed=0)
    pairs = np.concatenate([batch.pairs for batch in plan.epoch_batches(0)])
    assert set(pairs) == set(range(len(LENGTHS)))
    assert len(pairs) - len(LENGTHS) < max(len(batch.pairs) for batch in plan.epoch_batches(0))


def test_pairs_fit_their_shape_and_batches_their_budget() -> None:
    for batch in BatchPlan(LENGTHS, max_tokens=1000, seed=0).epoch_batches(1):
        assert (LENGTHS[batch.pairs] <= batch.shape).all()
        assert len(batch.pairs) * max(batch.shape) <= 1000


def test_the_fewest_rows_are_known_before_they_come() -> None:
    plan = BatchPlan(LENGTHS, max_tokens=1000, seed=0)
    assert plan.min_batch_size == min(len(batch.pairs) for batch in plan.epoch_batches(0)) == 1000 // 59


def test_there_are_few_shapes_and_each_has_one_number_of_rows() -> None:
    plan = BatchPlan(LENGTHS, max_tokens=1000, seed=0)
    seen = {(batch.shape, len(batch.pairs)) for epoch in range(3) for batch in plan.epoch_batches(epoch)}
    assert len(seen) <= len(plan.shapes) <= 6


def test_order_depends_on_seed_and_epoch_alone() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        plan = BatchPlan(LENGTHS, max_tokens=1000, seed=seed)
        return [int(pair) for batch in plan.epoch_batches(epoch) for pair in batch.pairs]

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(0, 2)
    assert order(0, 1) != order(1, 1)


def test_numbers_run_through_the_epochs() -> None:
    plan = BatchPlan(LENGTHS, max_tokens=1000, seed=0)
    count = plan.batches_per_epoch
    assert np.array_equal(plan.batch(count + 3).pairs, plan.epoch_batches(1)[3].pairs)
    assert np.array_equal(plan.batch(3).pairs, plan.epoch_batches(0)[3].pairs)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=80),
    st.integers(1, 300),
)
def test_laws_hold_for_any_corpus(rows: list[tuple[int, int]], max_tokens: int) -> None:
    lengths = np.array(rows, dtype=np.int32)
    plan = BatchPlan(lengths, max_tokens=max_tokens, seed=0)
    batches = plan.epoch_batches(0)
    assert len(batches) == plan.batches_per_epoch
    assert {int(i) for batch in batches for i in batch.pairs} == set(range(len(rows)))
    assert all((lengths[batch.pairs] <= batch.shape).all() for batch in batches)


def test_a_ladder_rises_on_both_sides_to_the_longest() -> None:
    shapes = bucket_shapes(LENGTHS)
    assert shapes[-1] == (59, 59)
    assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(shapes))


def test_a_side_of_one_length_is_never_padded() -> None:
    lengths = np.stack([np.arange(10, 50), np.full(40, 7)], axis=1)
    assert {target for _, target in bucket_shapes(lengths)} == {7}


def test_many_rungs_spare_short_pairs_the_padding_that_one_long_pair_asks_for() -> None:
    lengths = np.concatenate([LENGTHS % 20 + 1, [[120, 120]]])

    def padded(max_buckets: int) -> int:
        plan = BatchPlan(
            lengths, max_tokens=1000, seed=0, shapes=bucket_shapes(lengths, max_buckets=max_buckets)
        )
        return sum(len(batch.pairs) * sum(batch.shape) for batch in plan.epoch_batches(0))

    assert padded(MANY_BUCKETS) < 0.9 * padded(FEW_BUCKETS)


def test_rungs_below_the_shortest_pair_change_nothing() -> None:
    lengths = np.stack([np.arange(10, 50), np.full(40, 7)], axis=1)
    assert bucket_shapes(lengths, max_buckets=FEW_BUCKETS) == bucket_shapes(lengths, max_buckets=MANY_BUCKETS)


@pytest.mark.parametrize("max_tokens", [1, 5])
def test_a_budget_below_one_pair_still_makes_batches(max_tokens: int) -> None:
    assert all(
        len(batch.pairs) == 1
        for batch in BatchPlan(LENGTHS[:20], max_tokens=max_tokens, seed=0).epoch_batches(0)
    )
