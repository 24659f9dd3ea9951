"""pass@1 of a policy on fixed prompts, and the gain between two policies on the same prompts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import msgspec

from soliton.evals.statistics import Estimate, paired_bootstrap, wilson
from soliton.reasons import Status
from soliton.types import Trajectory

SOLVED_REWARD = 1.0
"""A trajectory solves its prompt when its total reward reaches this."""


class Evaluation(msgspec.Struct, frozen=True):
    """Results by prompt, one rollout each.

    Attributes:
        prompt_ids: which prompts, in order.
        rewards: total reward of each.
        solved: 1.0 or 0.0 for each.
        info: numbers that the environment reported, each as its mean over all prompts (`mean_info`).
    """

    prompt_ids: tuple[str, ...]
    rewards: tuple[float, ...]
    solved: tuple[float, ...]
    info: dict[str, float] = {}

    def pass_at_1(self) -> Estimate:
        """Share of prompts solved, with its Wilson interval."""
        return wilson(round(sum(self.solved)), len(self.solved))


def evaluation_of(trajectories: Sequence[Trajectory]) -> Evaluation:
    """Score finished trajectories, one per prompt.

    Raises:
        ValueError: a failed trajectory; a failure of the world is no result (fault F10).
    """
    failed = [t for t in trajectories if t.status is Status.FAILED]
    if failed:
        first = failed[0]
        raise ValueError(
            f"{len(failed)} of {len(trajectories)} trajectories failed, first {first.attempt}: {first.reason}"
        )
    rewards = tuple(t.total_reward for t in trajectories)
    return Evaluation(
        prompt_ids=tuple(t.prompt_id for t in trajectories),
        rewards=rewards,
        solved=tuple(float(reward >= SOLVED_REWARD) for reward in rewards),
        info=mean_info(trajectories),
    )


def mean_info(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Mean of each number in `Trajectory.info`, by name; a trajectory without it, or with one not finite, counts 0."""
    finite = [{name: x for name, x in t.info.items() if math.isfinite(x)} for t in trajectories]
    names = sorted({name for info in finite for name in info})
    return {name: fmean(info.get(name, 0.0) for info in finite) for name in names}


def gain(before: Evaluation, after: Evaluation, seed: int) -> Estimate:
    """Mean rise of pass@1 with its paired bootstrap interval.

    Raises:
        ValueError: the two evaluations are not of the same prompts in the same order.
    """
    if before.prompt_ids != after.prompt_ids:
        raise ValueError("a paired gain needs the same prompts in the same order before and after")
    return paired_bootstrap(before.solved, after.solved, seed)
