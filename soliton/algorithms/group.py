"""Group-normalised outcome advantages, for the GRPO family (PAPER section 6)."""

from __future__ import annotations

import torch
from torch import Tensor

from soliton.advantages import group_advantages
from soliton.learner.method import PackedBatch


def group_normalised_advantages(batch: PackedBatch) -> Tensor:
    """(R - mean of its group) / (std of its group + 1e-6), the same for every action token of a trajectory.

    Returns float32 [T], 0 off the action mask. A group without variance gives zeros; it is kept and counted.
    """
    totals = torch.zeros(len(batch.groups), dtype=torch.float64, device=batch.rewards.device)
    totals.index_add_(0, batch.segment_ids, batch.rewards.double())
    per_trajectory = group_advantages(totals.float(), batch.groups)
    return torch.where(batch.action_mask, per_trajectory[batch.segment_ids], 0.0)
