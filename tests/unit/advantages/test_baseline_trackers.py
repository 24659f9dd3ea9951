"""Baselines learned from rewards: hand numbers, slow references, order by draw, and their state."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.advantages.beta_tracker import BetaTracker
from soliton.advantages.running_mean import RunningMean

PROPERTY = settings(max_examples=1_000, deadline=None, database=None, derandomize=True)
REWARDS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.5, 1.0])), max_size=12)


def test_a_first_visit_gets_the_stated_prior() -> None:
    means = RunningMean(window=8, scope="prompt", prior=0.3)
    assert means.baseline("a") == 0.3
    means.observe("a", 0, 0, 1.0)
    assert (means.baseline("a"), means.baseline("b")) == (1.0, 0.3)


def test_the_window_holds_the_newest_draws_not_the_latest_arrivals() -> None:
    means = RunningMean(window=2, scope="prompt", prior=0.5)
    for draw, reward in [(9, 0.0), (3, 1.0), (5, 1.0)]:
        means.observe("a", draw, 0, reward)
    assert means.baseline("a") == 0.5  # draws 9 and 5


@PROPERTY
@given(REWARDS, st.integers(1, 4), st.sampled_from(["prompt", "global"]), st.integers(0, 2**32))
def test_arrival_order_does_not_matter_and_a_slow_mean_agrees(seen, window, scope, seed) -> None:
    entries = [(draw, prompt, reward) for draw, (prompt, reward) in enumerate(seen)]
    arrived = entries.copy()
    random.Random(seed).shuffle(arrived)
    means = RunningMean(window=window, scope=scope, prior=0.25)
    for draw, prompt, reward in arrived:
        means.observe(prompt, draw, 0, reward)
    for prompt in "abc":
        mine = [reward for _, owner, reward in entries if scope == "global" or owner == prompt][-window:]
        assert means.baseline(prompt) == pytest.approx(sum(mine) / len(mine) if mine else 0.25)
    restored = RunningMean(window=window, scope=scope, prior=0.25)
    restored.load_state(json.loads(json.dumps(means.state())))
    assert restored.state() == means.state()


def test_beta_numbers_by_hand() -> None:
    tracker = BetaTracker(prior=0.5)
    assert tracker.baseline("a") == 0.5
    tracker.observe("a", 1.0, 0.0)  # rho = 0.96 of alpha = beta = 4
    assert tracker.baseline("a") == pytest.approx(4.84 / (4.84 + 3.84))
    tracker.observe("a", 0.0, 1.0)  # far away: rho = 0.875
    assert tracker.baseline("a") == pytest.approx(0.875 * 4.84 / (0.875 * 8.68 + 1))


@pytest.mark.parametrize(("drift", "kept"), [(0.0, 0.96), (0.06 * 0.1, 2**-0.1), (0.06, 0.875)])
def test_the_share_kept_halves_with_drift_between_its_limits(drift: float, kept: float) -> None:
    tracker = BetaTracker(prior=1.0)
    tracker.observe("a", 0.0, drift)
    assert tracker.baseline("a") == pytest.approx(8 * kept / (8 * kept + 1))


@PROPERTY
@given(REWARDS, st.floats(0, 1))
def test_v_is_a_probability_and_its_state_comes_back(seen, prior) -> None:
    tracker = BetaTracker(prior=prior)
    for prompt, reward in seen:
        tracker.observe(prompt, reward, 0.01)
    assert all(0 <= tracker.baseline(prompt) <= 1 for prompt in "abc")
    restored = BetaTracker(prior=prior)
    restored.load_state(json.loads(json.dumps(tracker.state())))
    assert restored.state() == tracker.state()


def test_without_forgetting_v_is_the_mean_of_prior_counts_and_rewards() -> None:
    tracker = BetaTracker(prior=0.5, rho_min=0.875, rho_max=1.0)
    for reward in (1.0, 1.0, 0.0, 1.0):
        tracker.observe("a", reward, 0.0)
    assert tracker.baseline("a") == pytest.approx((4 + 3) / (8 + 4))


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="window"):
        RunningMean(window=0, scope="global", prior=0.0)
    with pytest.raises(ValueError, match="prior"):
        BetaTracker(prior=1.5)
    with pytest.raises(ValueError, match=r"rewards must lie in \[0, 1\]"):
        BetaTracker(prior=0.5).observe("a", -1.0, 0.0)
