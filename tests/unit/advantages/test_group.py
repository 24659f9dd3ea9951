"""group_advantages by hand numbers, its slow reference and its refusals."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.advantages import group_advantages


def test_two_rewards_are_normalised_by_mean_and_sample_deviation() -> None:
    advantages = group_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([7, 7, 7, 7]), eps=0.0)
    torch.testing.assert_close(advantages, torch.tensor([1.5, -0.5, -0.5, -0.5]))


def test_members_of_a_group_need_not_stand_together() -> None:
    advantages = group_advantages(torch.tensor([1.0, 5.0, 0.0, 3.0]), torch.tensor([9, 2, 9, 2]), eps=0.0)
    torch.testing.assert_close(advantages, torch.tensor([1, 1, -1, -1]) / math.sqrt(2))


@pytest.mark.parametrize("reward", [0.0, 0.1, 1e6, -3.3])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_group_without_spread_gets_exactly_zero(reward: float, size: int) -> None:
    for eps in (0.0, 1e-6):
        advantages = group_advantages(torch.full((size,), reward), torch.zeros(size, dtype=torch.int64), eps=eps)
        assert advantages.tolist() == [0.0] * size


def test_no_trajectories_give_no_advantages() -> None:
    assert group_advantages(torch.zeros(0), torch.zeros(0, dtype=torch.int64)).shape == (0,)


def test_the_result_is_float32_without_gradient() -> None:
    rewards = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    advantages = group_advantages(rewards, torch.tensor([0, 0]))
    assert advantages.dtype == torch.float32
    assert not advantages.requires_grad


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(st.binary(min_size=1, max_size=12))
def test_it_equals_a_slow_loop_over_groups(members: bytes) -> None:
    groups = [byte % 4 for byte in members]
    rewards = [(byte // 4 - 32) / 8 for byte in members]
    expected = []
    for group, reward in zip(groups, rewards, strict=True):
        mates = [r for g, r in zip(groups, rewards, strict=True) if g == group]
        if len(set(mates)) == 1:
            expected.append(0.0)
        else:
            expected.append((reward - float(np.mean(mates))) / (float(np.std(mates, ddof=1)) + 1e-6))
    advantages = group_advantages(torch.tensor(rewards), torch.tensor(groups))
    torch.testing.assert_close(advantages, torch.tensor(expected), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("rewards", "groups", "eps", "message"),
    [
        (torch.tensor([0.0, math.nan]), torch.tensor([0, 0]), 1e-6, r"rewards\[1\]"),
        (torch.zeros(2), torch.zeros(3, dtype=torch.int64), 1e-6, "both be"),
        (torch.zeros(2), torch.zeros(2), 1e-6, "integers"),
        (torch.zeros(2), torch.tensor([0, 0]), -1.0, "eps"),
    ],
)
def test_bad_arguments_are_refused(rewards: torch.Tensor, groups: torch.Tensor, eps: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        group_advantages(rewards, groups, eps=eps)
