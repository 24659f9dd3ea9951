"""Outcome advantages from comparing the rollouts of a prompt (paper §4)."""

from __future__ import annotations

import torch
from torch import Tensor

from soliton.advantages import group_advantages, leave_one_out_advantages
from soliton.learner.method import PackedBatch


def group_normalised_advantages(batch: PackedBatch) -> Tensor:
    """(R - mean of its group) / (std of its group + 1e-6), the same for every action token of a trajectory.

    Returns float32 [T], 0 off the action mask. A group without variance gives zeros; it is kept and counted.
    """
    return spread(group_advantages(total_rewards(batch), batch.groups), batch)


def leave_one_out(batch: PackedBatch) -> Tensor:
    """R minus the mean R of the others of its group, the same for every action token of a trajectory."""
    return spread(leave_one_out_advantages(total_rewards(batch), batch.groups), batch)


def total_rewards(batch: PackedBatch) -> Tensor:
    """Sum of the rewards of each trajectory, float32 [S]."""
    totals = torch.zeros(len(batch.groups), dtype=torch.float64, device=batch.rewards.device)
    return totals.index_add(0, batch.segment_ids, batch.rewards.double()).float()


def spread(per_trajectory: Tensor, batch: PackedBatch) -> Tensor:
    """One number per trajectory on each of its action tokens, 0 off the action mask."""
    return torch.where(batch.action_mask, per_trajectory[batch.segment_ids], 0.0)
