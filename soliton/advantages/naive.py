"""GAE that steps through observations, as other systems did (fault A1). For study only."""

from __future__ import annotations

import torch
from torch import Tensor

from soliton.advantages.gae import skip_observation_gae


def naive_gae(
    values: Tensor,
    rewards: Tensor,
    action_mask: Tensor,
    segment_ids: Tensor,
    *,
    gamma: float,
    lam: float | Tensor,
) -> Tensor:
    """Compute token GAE over ALL tokens from the first action on, observations included.

        delta_t = r_t + gamma V_{t+1} - V_t,   A_t = delta_t + gamma lam A_{t+1},   t over every token

    So every observation token costs a factor gamma * lam of credit, and what the critic says inside an observation
    reaches the actions before it. Special case: without observations it is `skip_observation_gae`.

    Args:
        values: floating [T], finite from the first action token of each segment on.
        rewards: [T], finite; they stay where they are.
        action_mask: bool [T].
        segment_ids: int64 [T], non-decreasing from 0.
        gamma: in [0, 1].
        lam: in [0, 1]; a float, or float64 [S].

    Returns:
        float32 [T], without gradient, 0 off the action mask.

    Raises:
        ValueError: see `skip_observation_gae`.
    """
    seen = action_mask.long().cumsum(0)
    before = torch.zeros(int(segment_ids.max()) + 2 if len(segment_ids) else 1, dtype=torch.int64, device=seen.device)
    before.index_add_(0, segment_ids + 1, action_mask.long())  # action tokens of each segment, moved by one
    stepped = seen > before.cumsum(0)[segment_ids]
    through = skip_observation_gae(values, rewards, stepped, gamma=gamma, lam=lam, segment_ids=segment_ids)
    return torch.where(action_mask, through, 0.0)
