"""Negative controls: what a run must NOT learn from."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from soliton.store.store import BatchItem


def with_shuffled_rewards(items: Sequence[BatchItem], seed: int) -> list[BatchItem]:
    """The same batch with its total rewards permuted among the trajectories, each on its last action token."""
    order = np.random.default_rng(seed).permutation(len(items))
    return [_with_reward(item, items[other].trajectory.total_reward) for item, other in zip(items, order, strict=True)]


def _with_reward(item: BatchItem, reward: float) -> BatchItem:
    trajectory = item.trajectory
    last_action = int(np.flatnonzero(trajectory.action_mask)[-1])
    changed = msgspec.structs.replace(
        trajectory,
        reward_positions=np.array([last_action], dtype=np.int32),
        reward_values=np.array([reward], dtype=np.float32),
    )
    return msgspec.structs.replace(item, trajectory=changed)
