"""The trajectory that the benchmarks of store and hub write."""

from __future__ import annotations

import numpy as np

from soliton.reasons import Status
from soliton.types import AttemptId, Role, Times, Trajectory

TOKENS = 600


def trajectory(attempt: AttemptId, rng: np.random.Generator) -> Trajectory:
    """600 tokens as a tool-using episode leaves them."""
    sampled = np.arange(TOKENS) % 3 > 0
    return Trajectory(
        attempt=attempt,
        prompt_id="0123456789abcdef",
        status=Status.TERMINATED,
        token_ids=rng.integers(0, 150_000, TOKENS),
        roles=np.where(sampled, Role.ACTION, Role.OBSERVATION),
        rollout_logprobs=np.where(sampled, -rng.random(TOKENS), np.nan),
        versions=np.where(sampled, 0, -1),
        reward_positions=[TOKENS - 1],
        reward_values=[1.0],
        times=Times(issued_s=0.0, started_s=0.0, finished_s=1.0),
    )
