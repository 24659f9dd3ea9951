"""Rewards that come after the episode: what a value must be, and what it makes of a trajectory. Decides nothing."""

from __future__ import annotations

import math
from typing import Literal

import msgspec
import numpy as np

from soliton.errors import RunError
from soliton.reasons import DropReason, Status
from soliton.types import Trajectory

RewardAck = Literal["accepted", "repeated"]

_FLOAT32_MAX = float(np.finfo(np.float32).max)


class TooEarlyError(RunError):
    """A reward for an attempt that is not handed in yet. The same call works in a moment."""


def awaits_reward(trajectory: Trajectory) -> bool:
    """Whether a part of its reward is still to come, so that nobody may learn from it."""
    is_over = trajectory.status is Status.FAILED
    return not is_over and trajectory.awaited is not None and trajectory.awaited.value is None


def check_value(trajectory: Trajectory, value: float) -> None:
    """Refuse a reward that `trajectory` cannot have (fault L5).

    Raises:
        ValueError: not a finite float32 number, or outside the environment's range.
    """
    awaited = trajectory.awaited
    assert awaited is not None
    if not math.isfinite(value) or abs(value) > _FLOAT32_MAX:
        raise ValueError(f"{trajectory.attempt}: the reward is {value!r}; it must be a finite number")
    low = -math.inf if awaited.low is None else awaited.low
    high = math.inf if awaited.high is None else awaited.high
    if not low <= value <= high:
        raise ValueError(f"{trajectory.attempt}: the reward is {value!r}; this environment allows {low:g} to {high:g}")


def with_reward(trajectory: Trajectory, value: float) -> Trajectory:
    """The trajectory with its reward, on the last token of its last action."""
    assert trajectory.awaited is not None
    last_action = int(np.flatnonzero(trajectory.action_mask)[-1])
    return msgspec.structs.replace(
        trajectory,
        reward_positions=np.append(trajectory.reward_positions, np.int32(last_action)),
        reward_values=np.append(trajectory.reward_values, np.float32(value)),
        awaited=msgspec.structs.replace(trajectory.awaited, value=value),
    )


def without_reward(trajectory: Trajectory) -> Trajectory:
    """The failed trajectory of one whose reward did not come in time."""
    return msgspec.structs.replace(
        trajectory,
        status=Status.FAILED,
        reason=DropReason.REWARD_TIMEOUT.value,
        reward_positions=np.zeros(0, dtype=np.int32),
        reward_values=np.zeros(0, dtype=np.float32),
    )
