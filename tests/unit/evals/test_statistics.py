"""Intervals against hand numbers, textbook limits and their own definition."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.evals.statistics import Estimate, paired_bootstrap, wilson


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [  # R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_wilson_interval_has_the_published_numbers(successes: int, n: int, low: float, high: float):
    estimate = wilson(successes, n)
    assert (estimate.mean, estimate.n) == (successes / n, n)
    assert (round(estimate.low, 4), round(estimate.high, 4)) == (low, high)


def test_the_wilson_interval_of_no_success_ends_at_z_squared_over_n_plus_z_squared():
    z = 1.959963984540054
    assert wilson(0, 10).high == pytest.approx(z * z / (10 + z * z), abs=1e-12)
    assert wilson(10, 10).low == pytest.approx(10 / (10 + z * z), abs=1e-12)
    assert (wilson(0, 10).low, wilson(10, 10).high) == (0.0, 1.0)


@settings(max_examples=1000, deadline=None)
@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_the_wilson_interval_solves_its_defining_equation(counts: tuple[int, int], confidence: float):
    """Its ends are the proportions q with |p - q| = z * sqrt(q (1 - q) / n)."""
    successes, n = counts
    estimate = wilson(successes, n, confidence)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    assert 0 <= estimate.low <= estimate.mean <= estimate.high <= 1
    for end in (estimate.low, estimate.high):
        if 0 < end < 1:
            assert abs(estimate.mean - end) == pytest.approx(z * math.sqrt(end * (1 - end) / n), abs=1e-9)


@settings(max_examples=1000, deadline=None)
@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_wilson_interval_of_failures_mirrors_that_of_successes(counts: tuple[int, int]):
    successes, n = counts
    of_successes, of_failures = wilson(successes, n), wilson(n - successes, n)
    assert of_failures.low == pytest.approx(1 - of_successes.high, abs=1e-12)
    assert of_failures.high == pytest.approx(1 - of_successes.low, abs=1e-12)


def test_the_wilson_interval_covers_the_truth_about_as_often_as_it_says():
    n, truth = 60, 0.31
    successes = np.random.default_rng(7).binomial(n, truth, size=4000)
    covered = [wilson(int(k), n).low <= truth <= wilson(int(k), n).high for k in successes]
    assert 0.93 < np.mean(covered) < 0.97


@pytest.mark.parametrize(
    ("arguments", "says"),
    [((0, 0), "n = 0"), ((1, 0), "n = 0"), ((-1, 5), "got -1"), ((6, 5), "got 6"), ((1, 5, 1.0), "confidence")],
)
def test_the_wilson_interval_refuses_what_is_no_proportion(arguments: tuple, says: str):
    with pytest.raises(ValueError, match=says):
        wilson(*arguments)


def test_the_paired_bootstrap_matches_the_hand_enumeration_of_all_resamples():
    """Differences 0 and 1: the resampled mean is 0, 1/2, 1/2 or 1, so the 95 % interval is [0, 1] around 1/2."""
    assert paired_bootstrap([0, 0], [0, 1], seed=0) == Estimate(mean=0.5, low=0.0, high=1.0, n=2)


def test_the_paired_bootstrap_of_a_constant_gain_has_no_width():
    before = np.linspace(0, 1, 64)
    estimate = paired_bootstrap(before, before + 0.25, seed=3)
    assert (estimate.mean, estimate.low, estimate.high, estimate.n) == pytest.approx((0.25, 0.25, 0.25, 64))


def test_the_paired_bootstrap_approaches_the_normal_interval_for_many_pairs():
    rng = np.random.default_rng(1)
    before, after = rng.random(2000), rng.random(2000) + 0.1
    estimate = paired_bootstrap(before, after, seed=5)
    difference = after - before
    half_width = 1.959964 * difference.std() / math.sqrt(len(difference))
    assert estimate.low == pytest.approx(difference.mean() - half_width, abs=half_width / 20)
    assert estimate.high == pytest.approx(difference.mean() + half_width, abs=half_width / 20)


def test_pairs_that_belong_together_make_the_interval_narrower():
    rng = np.random.default_rng(2)
    before = (rng.random(400) < 0.5).astype(float)
    after = np.maximum(before, rng.random(400) < 0.2)
    paired = paired_bootstrap(before, after, seed=0)
    broken = paired_bootstrap(before, rng.permutation(after), seed=0)
    assert paired.mean == pytest.approx(broken.mean)
    assert paired.high - paired.low < 0.7 * (broken.high - broken.low)


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=12), st.integers(0, 2**40))
def test_the_paired_bootstrap_is_deterministic_and_its_interval_stays_within_the_differences(pairs: list, seed: int):
    before, after = zip(*pairs, strict=True)
    first = paired_bootstrap(before, after, seed, resamples=300)
    assert first == paired_bootstrap(before, after, seed, resamples=300)
    differences = np.subtract(after, before)
    assert differences.min() - 1e-9 <= first.low <= first.high <= differences.max() + 1e-9
    assert first.mean == pytest.approx(differences.mean())


def test_another_seed_moves_the_interval_but_not_the_mean():
    rng = np.random.default_rng(0)
    before, after = rng.random(50), rng.random(50)
    one, other = (paired_bootstrap(before, after, seed=s) for s in (0, 1))
    assert one.mean == other.mean
    assert (one.low, one.high) != (other.low, other.high)
    assert one.low == pytest.approx(other.low, abs=0.02)


@pytest.mark.parametrize(
    ("before", "after", "options", "says"),
    [
        ([], [], {}, "at least one pair"),
        ([1.0], [1.0, 2.0], {}, "1 before and 2 after"),
        ([1.0], [math.nan], {}, "finite"),
        ([math.inf], [1.0], {}, "finite"),
        ([1.0], [1.0], {"resamples": 0}, "resamples"),
        ([1.0], [1.0], {"confidence": 0.0}, "confidence"),
    ],
)
def test_the_paired_bootstrap_refuses_what_has_no_interval(before: list, after: list, options: dict, says: str):
    with pytest.raises(ValueError, match=says):
        paired_bootstrap(before, after, seed=0, **options)


def test_an_estimate_reads_well():
    assert str(Estimate(0.3125, 0.2588, 0.3716, 256)) == "0.312 [0.259, 0.372] (n=256)"
