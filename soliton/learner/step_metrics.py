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
from soliton.metrics import ENTROPY_BINS, STALENESS_BINS
from soliton.reasons import Status
from soliton.store.store import BatchItem
from soliton.types import Trajectory

Metrics = dict[str, float]


def consumption_metrics(items: Sequence[BatchItem], dropped: int | None) -> Metrics:
    """What the store handed out: how old, how much of it cut, what it earned by age.

    Args:
        items: the batch, what the method leaves out included.
        dropped: how many it leaves out; None for methods that leave out nothing.
    """
    staleness = np.array([item.staleness for item in items])
    rewards = np.array([item.trajectory.total_reward for item in items])
    bins = np.minimum(staleness, STALENESS_BINS[-1])
    return {
        "staleness/mean": float(staleness.mean()),
        "staleness/max": float(staleness.max()),
        "trajectory/truncated_share": float(np.mean([i.trajectory.status is Status.TRUNCATED for i in items])),
        **({} if dropped is None else {"trajectory/dropped_truncated": float(dropped)}),
        **{f"reward/by_staleness_{b}": float(rewards[bins == b].mean()) for b in np.unique(bins)},
    }


def batch_metrics(batch: Batch) -> Metrics:
    """What is trained on: rewards, lengths, policy versions."""
    trajectories = batch.trajectories
    versions = [len(np.unique(t.versions[t.action_mask])) for t in trajectories]
    mixed_turns = np.concatenate([_turns_with_several_versions(t) for t in trajectories])
    return {
        "reward/mean": float(np.mean([t.total_reward for t in trajectories])),
        "tokens/action": float(batch.num_action_tokens),
        "tokens/total": float(len(batch.rewards)),
        "trajectory/length_mean": len(batch.rewards) / len(trajectories),
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


def lag_metrics(batch: Batch, version: int | None) -> Metrics:
    """How many versions were published while trajectories were generated, and since; and how old tokens are.

    Args:
        batch: what is trained on.
        version: of the policy as it is now; None if unknown, then all but the first are absent.
    """
    oldest = np.array([t.oldest_version for t in batch.trajectories])
    newest = np.array([t.newest_version for t in batch.trajectories])
    generating = {"staleness/generating_mean": float((newest - oldest).mean())}
    if version is None:
        return generating
    token_versions = batch.versions[batch.action_mask]
    return generating | {
        "staleness/waiting_mean": float((version - newest).mean()),
        "staleness/token_mean": version - float(token_versions.double().mean()),
        "staleness/token_max": float(version - oldest.min()),
    }


def group_metrics(batch: Batch) -> Metrics:
    """How many groups of a method that compares rollouts had nothing to compare (paper §4.1)."""
    rewards: dict[int, set[float]] = {}
    for trajectory in batch.trajectories:
        rewards.setdefault(trajectory.attempt.draw, set()).add(trajectory.total_reward)
    return {"group/zero_variance_share": float(np.mean([len(different) == 1 for different in rewards.values()]))}


def advantage_metrics(batch: Batch, advantages: Tensor) -> Metrics:
    """Mean and standard deviation of the advantage over action tokens."""
    of_actions = advantages[batch.action_mask].double()
    return {"advantage/mean": float(of_actions.mean()), "advantage/std": float(of_actions.std(correction=0))}


def critic_metrics(batch: Batch, first: CriticPass) -> Metrics:
    """The first fit of a step: loss, gradient and fit of the values from before it."""
    explained = explained_variance(first.values, first.targets, first.valued)
    values = first.values[batch.action_mask].double()
    return {
        "critic/loss": first.loss,
        "critic/lr": first.lr,
        **({} if math.isnan(explained) else {"critic/explained_var": explained}),  # undefined is absent, never 0
        "critic/value_mean": float(values.mean()),
        "critic/value_min": float(values.min()),
        "critic/value_max": float(values.max()),
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


def entropy_metrics(batch: Batch, policy_logprobs: Tensor, entropies: Tensor, band: tuple[float, float]) -> Metrics:
    """Share of the action tokens outside the band among those of low, middle and high entropy; absent without any.

    The ratio of a token that was a free choice strays further than that of a forced one: a mask that falls on forced
    tokens alone speaks of noise between engine and learner, one on free ones of a policy that has moved.
    """
    low, high = band
    split = split_by_band(policy_logprobs, batch.rollout_logprobs, batch.action_mask, low, high)
    outside = split.low | split.high
    members = {
        name: batch.action_mask & (entropies >= start) & (entropies < end)
        for name, (start, end) in ENTROPY_BINS.items()
    }
    counts = sums(**members, **{f"{name}_outside": member & outside for name, member in members.items()})
    return {
        f"trust_mask/share_entropy_{name}": counts[f"{name}_outside"] / counts[name] for name in members if counts[name]
    }


def actor_metrics(actor: ActorPass) -> Metrics:
    """The actor's pass, and what separates it from the recorded log-probs whether or not the method looks at them."""
    tokens = actor.band["tokens"]
    # Undefined ratios (both log-probs the same infinity) never get here: a policy log-prob must be finite.
    low, high = actor.band["masked_low"] / tokens, actor.band["masked_high"] / tokens
    ratio_sum, ratio_sq_sum = actor.band["ratio_sum"], actor.band["ratio_sq_sum"]
    counts = sums(entropy=actor.entropies, signal=actor.signal)
    return {
        "actor/loss": actor.loss,
        "actor/grad_norm": actor.grad_norm,
        "actor/lr": actor.lr,
        "actor/entropy": counts["entropy"] / tokens,
        "actor/signal_share": counts["signal"] / tokens,
        **{f"actor/{name}": value for name, value in actor.terms.items()},
        "trust_mask/share": low + high,
        "trust_mask/share_low": low,
        "trust_mask/share_high": high,
        "log_ratio/mean": actor.band["log_ratio_sum"] / tokens,
        "log_ratio/abs_mean": actor.band["abs_log_ratio_sum"] / tokens,
        "ratio/mean": ratio_sum / tokens,
        "ratio/max": actor.band["ratio_max"],
        "ratio/effective_share": ratio_sum**2 / (tokens * ratio_sq_sum) if ratio_sq_sum else 0.0,
    }


def parity_metrics(batch: Batch, policy_logprobs: Tensor, version: int | None) -> Metrics:
    """Absolute gap of recorded and policy log-probs, tokens of the learner's own version apart from older ones.

    Args:
        batch: what is trained on.
        policy_logprobs: float32 [T], before the update.
        version: of the policy as it is now; None if unknown, then the gaps by version are absent.
    """
    versions = batch.versions[batch.action_mask]
    gap = (policy_logprobs - batch.rollout_logprobs)[batch.action_mask].double().abs()
    newest = gap[versions == versions.max()]
    found = {"parity/newest_gap_mean": float(newest.mean()), "parity/newest_gap_max": float(newest.max())}
    if version is None:
        return found
    same, older = gap[versions == version], gap[versions != version]
    if len(same):
        found |= {"parity/same_version_gap_mean": float(same.mean()), "parity/same_version_gap_max": float(same.max())}
    return found | ({"parity/older_version_gap_mean": float(older.mean())} if len(older) else {})
