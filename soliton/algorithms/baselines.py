"""Advantages from a tracker's baselines (paper §4)."""

from __future__ import annotations

import torch
from torch import Tensor

from soliton.advantages import group_advantages
from soliton.algorithms.group import spread, total_rewards
from soliton.learner.method import PackedBatch


def reward_minus_baseline(batch: PackedBatch) -> Tensor:
    """R minus the tracker's baseline, the same for every action token of a trajectory."""
    return spread(_differences(batch), batch)


def normalised_reward_minus_baseline(batch: PackedBatch) -> Tensor:
    """R minus the tracker's baseline, normalised by mean and deviation over the trajectories of the batch."""
    one_group = torch.zeros_like(batch.groups)
    return spread(group_advantages(_differences(batch), one_group), batch)


def _differences(batch: PackedBatch) -> Tensor:
    assert batch.baselines is not None, "a method with a tracker is given baselines"
    return total_rewards(batch) - batch.baselines
