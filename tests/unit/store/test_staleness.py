import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soliton.store.staleness import MIN_DROPS, HoldRule, LengthCounts, dropped_long_share


def schedulable(floors: list[int], bound: int, next_step: int, per_batch: int) -> bool:
    """Slow and obvious: consume the oldest `per_batch` at each step and look whether one is ever too old."""
    left = sorted(floors)
    step = next_step
    while left:
        if step - left[0] > bound:
            return False
        left = left[per_batch:]
        step += 1
    return True


@pytest.mark.parametrize("bound", range(5))
@pytest.mark.parametrize("per_batch", range(1, 5))
def test_a_batch_is_held_exactly_if_it_would_make_something_too_old_and_waiting_can_help(bound, per_batch):
    rng = np.random.default_rng([bound, per_batch])
    outcomes = [check_one_hold(rng, bound, per_batch) for _ in range(200)]
    assert any(outcomes)
    assert not all(outcomes)


def check_one_hold(rng: np.random.Generator, bound: int, per_batch: int) -> bool:
    pending = rng.integers(0, 7, size=rng.integers(0, 13)).tolist()
    ready = rng.integers(0, 7, size=rng.integers(per_batch, 13)).tolist()
    step = 6
    rule = HoldRule(bound, per_batch)
    for draw, floor in enumerate(pending):
        rule.set(draw, floor, ready=False)
    for draw, floor in enumerate(sorted(ready), start=100):
        rule.set(draw, floor, ready=True)
    batch = sorted(ready)[:per_batch]
    left = pending + sorted(ready)[per_batch:]
    waiting_helps = bool(pending) and min(pending) < max(batch)
    expected = waiting_helps and not schedulable(left, bound, step + 1, per_batch)
    assert rule.must_hold(step) == expected
    return expected


def test_an_attempt_whose_last_chance_is_now_holds_the_batch():
    rule = HoldRule(max_staleness=2, draws_per_batch=1)
    rule.set(0, floor=3, ready=False)
    rule.set(1, floor=4, ready=True)
    assert not rule.must_hold(step=4)
    assert rule.must_hold(step=5)
    assert rule.oldest_pending() == 0
    rule.set(0, floor=None, ready=False)  # it failed; its next attempt will be of a newer version
    assert not rule.must_hold(step=5)
    assert rule.oldest_pending() is None


def test_a_batch_of_the_oldest_draws_is_never_held():
    rule = HoldRule(max_staleness=0, draws_per_batch=2)
    for draw in range(6):
        rule.set(draw, floor=0, ready=draw < 2)
    assert not rule.must_hold(step=5)


def test_without_a_batch_there_is_nothing_to_hold():
    rule = HoldRule(max_staleness=0, draws_per_batch=2)
    rule.set(0, floor=0, ready=False)
    rule.set(1, floor=1, ready=True)
    assert not rule.must_hold(step=5)
    rule.set(2, floor=1, ready=True)
    assert rule.must_hold(step=5)
    rule.forget(2)
    assert not rule.must_hold(step=5)


def test_length_deciles_are_those_of_all_committed_trajectories():
    counts = LengthCounts()
    for length in range(1, 101):
        counts.add_committed(length)
    for length in (1, 10, 11, 91, 100, 100):
        counts.add_dropped(length)
    assert counts.dropped_by_decile() == (2, 1, 0, 0, 0, 0, 0, 0, 0, 3)


def test_equal_lengths_show_no_bias():
    counts = LengthCounts()
    for _ in range(50):
        counts.add_committed(7)
        counts.add_dropped(7)
    assert counts.dropped_by_decile() == (0, 0, 0, 0, 0, 50, 0, 0, 0, 0)
    assert dropped_long_share(counts.dropped_by_decile()) == 0


def test_no_commit_means_ten_zeros():
    assert LengthCounts().dropped_by_decile() == (0,) * 10


@given(st.lists(st.tuples(st.integers(1, 300), st.booleans()), max_size=200))
def test_every_drop_is_in_one_decile_and_longer_ones_are_never_in_a_lower_one(lengths):
    counts = LengthCounts()
    for length, dropped in lengths:
        counts.add_committed(length)
        if dropped:
            counts.add_dropped(length)
    deciles = counts.dropped_by_decile()
    of_drops = sorted(length for length, dropped in lengths if dropped)
    assert sum(deciles) == len(of_drops)
    for length in set(of_drops):
        below = sum(other < length for other, _ in lengths)
        here = sum(other == length for other, _ in lengths)
        assert deciles[math.floor(10 * (below + here / 2) / len(lengths))] >= Counter(of_drops)[length]


def test_drops_of_long_trajectories_raise_the_long_share_and_few_drops_say_nothing():
    assert dropped_long_share((3,) * 10) == pytest.approx(0.2)
    assert dropped_long_share((0,) * 8 + (MIN_DROPS, 0)) == 1
    assert math.isnan(dropped_long_share((0,) * 9 + (MIN_DROPS - 1,)))
    shares = [dropped_long_share((10,) * 9 + (10 * k,)) for k in range(1, 6)]
    assert all(a < b for a, b in pairwise(shares))
