"""Group-normalised rewards: the critic-free baseline of GRPO.

Owns one formula. Does not know tokens: the caller spreads the number over the action tokens of its trajectory.
Guarantees: a group without spread, or of one, gets exactly 0.
"""

from __future__ import annotations

import torch
from torch import Tensor


def group_advantages(rewards: Tensor, groups: Tensor, *, eps: float = 1e-6) -> Tensor:
    """Normalise each trajectory's reward by the mean and spread of its group.

        A_i = (R_i - mean(R in group)) / (std(R in group) + eps)        (paper §4.1)

    std is the sample deviation (divisor n - 1), as in the field's implementations of GRPO: a choice.
    Special cases: groups of one and groups of equal rewards give exactly 0.

    Args:
        rewards: [S], one total reward per trajectory, finite.
        groups: integers [S], the group of each trajectory; any ids in any order.
        eps: >= 0, added to the deviation.

    Returns:
        float32 [S] on the device of `rewards`, without gradient.

    Raises:
        ValueError: other shapes, groups that are not integers, a reward that is not finite (named), a negative eps.
    """
    if not eps >= 0:
        raise ValueError(f"eps must be >= 0, got {eps}")
    r, members, sizes = checked_members(rewards, groups)
    empty = torch.zeros_like(sizes)
    deviations = r - (empty.scatter_add(0, members, r) / sizes)[members]
    std = (empty.scatter_add(0, members, deviations.square()) / (sizes - 1).clamp(min=1)).sqrt()
    # Equal rewards leave deviations of rounding size, which eps alone would not turn into an exact 0.
    low = empty.scatter_reduce(0, members, r, "amin", include_self=False)
    high = empty.scatter_reduce(0, members, r, "amax", include_self=False)
    spread = (high > low)[members]
    return torch.where(spread, deviations / torch.where(spread, std[members] + eps, 1.0), 0.0).float()


def checked_members(rewards: Tensor, groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rewards in float64 [S], the number of each one's group [S], and the size of each group, float64.

    Raises:
        ValueError: see `group_advantages`.
    """
    if rewards.ndim != 1 or groups.shape != rewards.shape:
        raise ValueError(f"rewards {tuple(rewards.shape)} and groups {tuple(groups.shape)} must both be [S]")
    if groups.is_floating_point() or groups.is_complex():
        raise ValueError(f"groups must be integers, got {groups.dtype}")
    r = rewards.detach().double()
    bad = ~torch.isfinite(r)
    if bool(bad.any()):
        i = int(bad.int().argmax())
        raise ValueError(f"rewards[{i}] = {r[i].item()}; rewards are finite")
    _, members = torch.unique(groups.to(r.device), return_inverse=True)
    num_groups = int(members.max()) + 1 if len(members) else 0
    empty = torch.zeros(num_groups, dtype=torch.float64, device=r.device)
    return r, members, empty.scatter_add(0, members, torch.ones_like(r))
