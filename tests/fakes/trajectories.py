"""Small valid records for tests, every field of which can be chosen."""

from __future__ import annotations

from typing import Any

import numpy as np

from soliton.reasons import Status
from soliton.types import AttemptId, Publication, Role, Times, Trajectory

NAN = float("nan")


def trajectory(
    attempt: AttemptId | None = None, action_versions: tuple[int, ...] = (0, 0), **changes: Any
) -> Trajectory:
    """A prompt token, one action token per entry of `action_versions`, reward 1 on the last one."""
    n = len(action_versions)
    fields: dict[str, Any] = {
        "attempt": attempt or AttemptId(0),
        "prompt_id": "prompt",
        "status": Status.TERMINATED,
        "token_ids": np.arange(1 + n),
        "roles": [Role.OBSERVATION] + [Role.ACTION] * n,
        "rollout_logprobs": [NAN] + [-0.5] * n,
        "versions": [-1, *action_versions],
        "reward_positions": [n],
        "reward_values": [1.0],
        "times": Times(issued_s=0.0, started_s=0.0, finished_s=1.0),
    }
    return Trajectory(**fields | changes)


def failed(attempt: AttemptId, reason: str = "env_error") -> Trajectory:
    """An attempt that the world ended before anything was sampled."""
    return Trajectory(
        attempt=attempt,
        prompt_id="prompt",
        status=Status.FAILED,
        reason=reason,
        token_ids=[],
        roles=[],
        rollout_logprobs=[],
        versions=[],
        reward_positions=[],
        reward_values=[],
        times=Times(issued_s=0.0, started_s=0.0, finished_s=1.0),
    )


def publication(step: int, first: int = 0) -> Publication:
    """Row of a version table in which versions and steps grow together; `first` has no parent."""
    return Publication(version=step, parent=step - 1 if step > first else -1, step=step, sha256=f"{step:064x}")
