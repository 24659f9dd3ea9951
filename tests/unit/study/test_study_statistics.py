"""Intervals over seeds, against numbers worked out by hand."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.study.statistics import at, mean_over_seeds, paired_difference

NUMBERS = st.floats(-100, 100)


def test_the_interval_of_one_two_three_is_the_one_of_the_textbook():
    estimate = mean_over_seeds([1.0, 2.0, 3.0])
    assert estimate.n == 3
    assert estimate.mean == 2.0
    # t(0.975; 2) = 4.30265, s = 1, so +- 4.30265 / sqrt(3)
    assert estimate.low == pytest.approx(2 - 4.30265 / math.sqrt(3), abs=1e-4)
    assert estimate.high == pytest.approx(2 + 4.30265 / math.sqrt(3), abs=1e-4)


def test_five_seeds_use_the_t_value_of_four_degrees_of_freedom():
    values = [0.5, 0.6, 0.55, 0.65, 0.45]
    # mean 0.55, s^2 = (0.0025 + 0.0025 + 0 + 0.01 + 0.01) / 4 = 0.00625, t(0.975; 4) = 2.77645
    half_width = 2.77645 * math.sqrt(0.00625 / 5)
    estimate = mean_over_seeds(values)
    assert estimate.high - estimate.mean == pytest.approx(half_width, abs=1e-6)


def test_equal_seeds_have_an_interval_without_width_and_one_seed_has_none():
    assert mean_over_seeds([0.3, 0.3]) == mean_over_seeds([0.3, 0.3, 0.3], 0.5).__class__(0.3, 0.3, 0.3, 2)
    alone = mean_over_seeds([0.3])
    assert (alone.mean, alone.low, alone.high) == (0.3, -math.inf, math.inf)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_what_has_no_interval_is_refused(values):
    with pytest.raises(ValueError, match="needs finite values, at least one"):
        mean_over_seeds(values)
    with pytest.raises(ValueError, match="confidence must be in"):
        mean_over_seeds([1.0, 2.0], confidence=1.0)


def test_pairing_takes_out_what_a_seed_does_to_both():
    seeds = {0: 0.1, 1: 0.9, 2: 0.4}
    better = {seed: value + 0.05 for seed, value in seeds.items()}
    difference = paired_difference(better, seeds)
    assert difference is not None
    assert (difference.low, difference.high) == (pytest.approx(0.05), pytest.approx(0.05))


def test_only_seeds_that_both_have_are_compared():
    difference = paired_difference({0: 1.0, 1: 5.0, 2: 3.0}, {1: 4.0, 2: 2.0, 3: 100.0})
    assert difference is not None
    assert (difference.mean, difference.n) == (1.0, 2)
    assert paired_difference({0: 1.0}, {1: 1.0}) is None


@settings(deadline=None)
@given(st.lists(NUMBERS, min_size=2, max_size=8), NUMBERS)
def test_shifting_every_seed_shifts_the_interval(values, shift):
    before, after = mean_over_seeds(values), mean_over_seeds([value + shift for value in values])
    for end in ("low", "mean", "high"):
        assert getattr(after, end) == pytest.approx(getattr(before, end) + shift, abs=1e-6)


def test_interpolation_is_linear_between_points_and_flat_beyond_them():
    xs, ys = [0.0, 10.0, 20.0], [0.2, 0.4, 0.3]
    assert [at(xs, ys, x) for x in (-5, 0, 5, 10, 15, 20, 99)] == pytest.approx([0.2, 0.2, 0.3, 0.4, 0.35, 0.3, 0.3])
    assert at([0.0, 0.0], [1.0, 2.0], 0.0) == 1.0
    assert at([7.0], [1.5], 3.0) == 1.5
