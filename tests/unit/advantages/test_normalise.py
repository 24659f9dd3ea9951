"""Normalised advantages under both measures: hand numbers, a slow reference, limits, properties."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.advantages import group_advantages, normalised_over_action_tokens, normalised_over_trajectories

MASK = torch.tensor([True, True, True, False, True])
SEGMENTS = torch.tensor([0, 0, 0, 0, 1])
ADVANTAGES = torch.tensor([1.0, 1.0, 1.0, math.nan, -1.0])


def test_over_action_tokens_by_hand():
    ours = normalised_over_action_tokens(ADVANTAGES, MASK, SEGMENTS, eps=0.0)  # mean 0.5, sum of squares 3
    torch.testing.assert_close(ours, torch.tensor([0.5, 0.5, 0.5, 0.0, -1.5]))


def test_over_trajectories_by_hand_a_long_one_counts_once():
    ours = normalised_over_trajectories(ADVANTAGES, MASK, SEGMENTS, eps=0.0)  # mean 0, deviation sqrt(2)
    half = 1 / math.sqrt(2)
    torch.testing.assert_close(ours, torch.tensor([half, half, half, 0.0, -half]))


@pytest.mark.parametrize("normalised", [normalised_over_action_tokens, normalised_over_trajectories])
def test_one_unit_alone_is_left_as_it_is_and_equal_ones_become_exactly_zero(normalised):  # fault A9
    alone = normalised(torch.tensor([2.0]), torch.tensor([True]), torch.tensor([0]))
    assert alone.tolist() == [2.0]
    equal = normalised(torch.full((4,), 0.1), torch.ones(4, dtype=torch.bool), torch.tensor([0, 1, 2, 3]))
    assert equal.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("normalised", [normalised_over_action_tokens, normalised_over_trajectories])
def test_an_advantage_that_is_no_number_is_refused_by_index(normalised):
    with pytest.raises(ValueError, match=r"advantages\[1\] = nan"):
        normalised(torch.tensor([1.0, math.nan]), torch.tensor([True, True]), torch.tensor([0, 1]))


def random_batch(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 8, int(rng.integers(2, 6)))
    segments = torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths))
    mask = torch.from_numpy(rng.random(len(segments)) < 0.7)
    advantages = torch.from_numpy(rng.normal(0.5, 2, len(segments)))
    return torch.where(mask, advantages, math.nan), mask, segments


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_both_measures_equal_slow_loops_and_do_not_depend_on_shift_and_scale(seed: int):
    advantages, mask, segments = random_batch(seed)
    acting = [s for s in range(int(segments.max()) + 1) if mask[segments == s].any()]
    of = {s: advantages[(segments == s) & mask].tolist() for s in acting}
    weights = {
        normalised_over_action_tokens: {s: [1.0] * len(of[s]) for s in acting},
        normalised_over_trajectories: {s: [1.0 / len(of[s])] * len(of[s]) for s in acting},
    }
    for normalised, w in weights.items():
        units = round(sum(map(sum, w.values())))
        if units < 2:
            continue
        mean = sum(x * y for s in acting for x, y in zip(of[s], w[s], strict=True)) / units
        square = sum((x - mean) ** 2 * y for s in acting for x, y in zip(of[s], w[s], strict=True)) / (units - 1)
        ours = normalised(advantages, mask, segments)
        for s in acting:
            mine = ours[(segments == s) & mask].tolist()
            assert mine == pytest.approx([(x - mean) / (math.sqrt(square) + 1e-6) for x in of[s]], rel=1e-4, abs=1e-5)
        assert not ours[~mask].any()
        moved = normalised(advantages * 3 + 7, mask, segments)
        torch.testing.assert_close(moved, ours, rtol=1e-3, atol=1e-4)


def test_one_advantage_per_trajectory_gives_the_z_score_among_trajectories():
    rewards = torch.tensor([0.0, 1.0, 1.0, 3.0])
    lengths = torch.tensor([5, 1, 2, 9])
    segments = torch.repeat_interleave(torch.arange(4), lengths)
    ours = normalised_over_trajectories(rewards[segments], torch.ones(17, dtype=torch.bool), segments)
    expected = group_advantages(rewards, torch.zeros(4, dtype=torch.int64))
    torch.testing.assert_close(ours, expected[segments])
