"""Metrics of one learner step, under the names of `soliton.metrics`, the same for every method.

Everything is a global sum divided once by a global count (fault E2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from soliton.learner.actor import ActorPass
from soliton.learner.critic import CriticPass
from soliton.learner.packing import Batch
from soliton.losses import explained_variance
from soliton.losses.band import split_by_band, sums
from soliton.store.store import BatchItem
from soliton.types import Status, Trajectory

Metrics = dict[str, float]


def batch_metrics(batch: Batch, staleness: Sequence[int]) -> Metrics:
    """What was consumed: rewards, lengths, ages, policy versions."""
    trajectories = batch.trajectories
    versions = [len(np.unique(t.versions[t.action_mask])) for t in trajectories]
    mixed_turns = np.concatenate([_turns_with_several_versions(t) for t in trajectories])
    return {
        "reward/mean": float(np.mean([t.total_reward for t in trajectories])),
        "tokens/action": float(batch.num_action_tokens),
        "tokens/total": float(len(batch.rewards)),
        "trajectory/length_mean": len(batch.rewards) / len(trajectories),
        "trajectory/truncated_share": float(np.mean([t.status is Status.TRUNCATED for t in trajectories])),
        "staleness/mean": float(np.mean(staleness)),
        "staleness/max": float(max(staleness)),
        "versions/mean": float(np.mean(versions)),
        "versions/max": float(max(versions)),
        "versions/share_mixed": float(np.mean([n > 1 for n in versions])),
        "versions/share_mixed_turns": float(mixed_turns.mean()),
    }


def _turns_with_several_versions(trajectory: Trajectory) -> NDArray[np.bool_]:
    """One entry per turn (an unbroken run of action tokens): whether the policy changed inside it."""
    positions = np.flatnonzero(trajectory.action_mask)
    turn = np.cumsum(np.diff(positions, prepend=positions[0]) > 1)
    changed = (np.diff(trajectory.versions[positions], prepend=0) != 0) & (np.diff(turn, prepend=-1) == 0)
    return np.bincount(turn, weights=changed) > 0


def group_metrics(batch: Batch) -> Metrics:
    """How many groups of a method that compares rollouts had nothing to compare (PAPER section 6, row grpo)."""
    rewards: dict[int, set[float]] = {}
    for trajectory in batch.trajectories:
        rewards.setdefault(trajectory.attempt.draw, set()).add(trajectory.total_reward)
    return {"group/zero_variance_share": float(np.mean([len(different) == 1 for different in rewards.values()]))}


def staleness_of(items: Sequence[BatchItem]) -> list[int]:
    """Staleness of each item, as the store computed it at consumption."""
    return [item.staleness for item in items]


def advantage_metrics(batch: Batch, advantages: Tensor) -> Metrics:
    """Mean and standard deviation of the advantage over action tokens."""
    of_actions = advantages[batch.action_mask].double()
    return {"advantage/mean": float(of_actions.mean()), "advantage/std": float(of_actions.std(correction=0))}


def critic_metrics(batch: Batch, first: CriticPass) -> Metrics:
    """The first fit of a step: loss, gradient and fit of the values from before it."""
    explained = explained_variance(first.values, first.targets, first.valued)
    return {
        "critic/loss": first.loss,
        "critic/lr": first.lr,
        **({} if math.isnan(explained) else {"critic/explained_var": explained}),  # undefined is absent, never 0
        "critic/value_mean": float(first.values[batch.action_mask].double().mean()),
    }


def sides_by_sign(batch: Batch, policy_logprobs: Tensor, advantages: Tensor, band: tuple[float, float]) -> Metrics:
    """Action tokens outside the band by side and sign of their advantage, each as a share of all action tokens.

    A token over the band with a positive advantage, or under it with a negative one, has already moved the way that
    its advantage asks for; the other two are moving against it. Tokens without an advantage are in neither.
    """
    low, high = band
    split = split_by_band(policy_logprobs, batch.rollout_logprobs, batch.action_mask, low, high)
    counts = sums(
        high_positive=split.high & (advantages > 0),
        high_negative=split.high & (advantages < 0),
        low_positive=split.low & (advantages > 0),
        low_negative=split.low & (advantages < 0),
    )
    return {f"trust_mask/share_{name}": count / batch.num_action_tokens for name, count in counts.items()}


def actor_metrics(batch: Batch, actor: ActorPass) -> Metrics:
    """The actor's pass, and what separates it from the recorded log-probs whether or not the method looks at them."""
    tokens = actor.band["tokens"]
    # Undefined ratios (both log-probs the same infinity) never get here: a policy log-prob must be finite.
    low, high = actor.band["masked_low"] / tokens, actor.band["masked_high"] / tokens
    newest = batch.versions == batch.versions.max()
    gap = (actor.logprobs - batch.rollout_logprobs)[newest].double().abs()
    return {
        "actor/loss": actor.loss,
        "actor/grad_norm": actor.grad_norm,
        "actor/lr": actor.lr,
        "actor/entropy": actor.entropy,
        "actor/signal_share": actor.signal_tokens / batch.num_action_tokens,
        "trust_mask/share": low + high,
        "trust_mask/share_low": low,
        "trust_mask/share_high": high,
        "log_ratio/mean": actor.band["log_ratio_sum"] / tokens,
        "log_ratio/abs_mean": actor.band["abs_log_ratio_sum"] / tokens,
        "ratio/max": actor.band["ratio_max"],
        "parity/newest_gap_mean": float(gap.mean()),
        "parity/newest_gap_max": float(gap.max()),
    }
