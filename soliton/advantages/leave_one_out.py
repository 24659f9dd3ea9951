"""Leave-one-out rewards: the critic-free baseline of RLOO.

Owns one formula. Does not know tokens. Guarantees: a group of one gets exactly 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from soliton.advantages.group import checked_members


def leave_one_out_advantages(rewards: Tensor, groups: Tensor) -> Tensor:
    """Subtract from each trajectory's reward the mean reward of the OTHERS of its group.

        A_i = R_i - sum_{j != i} R_j / (n - 1)        (RLOO, https://arxiv.org/abs/2402.14740)

    Unlike the mean of the whole group the baseline does not depend on the action it judges, so it adds no bias.
    Equals n / (n - 1) times the deviation from the group's mean.

    Args:
        rewards: [S], one total reward per trajectory, finite.
        groups: integers [S], the group of each trajectory; any ids in any order.

    Returns:
        float32 [S] on the device of `rewards`, without gradient; 0 for groups of one.

    Raises:
        ValueError: other shapes, groups that are not integers, a reward that is not finite (named).
    """
    r, members, sizes = checked_members(rewards, groups)
    sums = torch.zeros_like(sizes).scatter_add(0, members, r)
    others = (sums[members] - r) / (sizes[members] - 1).clamp(min=1)
    return torch.where(sizes[members] > 1, r - others, 0.0).float()
