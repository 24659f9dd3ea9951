"""Advantages and targets from a critic, shared by every method that has one (paper §3.2)."""

from __future__ import annotations

import torch
from torch import Tensor

from soliton.advantages import length_adaptive_lambda, naive_gae, skip_observation_gae
from soliton.algorithms.options import MethodOptions
from soliton.learner.method import PackedBatch


def policy_advantages(batch: PackedBatch, options: MethodOptions) -> Tensor:
    """Skip-observation GAE at the policy's lambda; float32 [T], 0 off the action mask."""
    return _gae(batch, options.gamma, _policy_lambda(batch, options))


def policy_advantages_through_observations(batch: PackedBatch, options: MethodOptions) -> Tensor:
    """GAE that steps through observations at the policy's lambda; for study."""
    assert batch.values is not None
    lam = _policy_lambda(batch, options)
    return naive_gae(batch.values, batch.rewards, batch.action_mask, batch.segment_ids, gamma=options.gamma, lam=lam)


def critic_returns(batch: PackedBatch, options: MethodOptions) -> Tensor:
    """Targets of the critic: GAE at the critic's lambda, plus the values; float32 [T], 0 off the action mask."""
    assert batch.values is not None
    advantages = _gae(batch, options.gamma, options.critic_lambda)
    return torch.where(batch.action_mask, advantages + batch.values, 0.0)


def _gae(batch: PackedBatch, gamma: float, lam: float | Tensor) -> Tensor:
    assert batch.values is not None, "a method with a critic is given values"
    return skip_observation_gae(
        batch.values,
        batch.rewards,
        batch.action_mask,
        gamma=gamma,
        lam=lam,
        segment_ids=batch.segment_ids,
        bootstrap_values=batch.bootstrap_values,
    )


def _policy_lambda(batch: PackedBatch, options: MethodOptions) -> float | Tensor:
    counts = torch.bincount(batch.segment_ids, weights=batch.action_mask.double(), minlength=len(batch.groups))
    return lambda_of(counts.long(), options)


def lambda_of(lengths: Tensor, options: MethodOptions) -> float | Tensor:
    """The policy's lambda: a fixed one, or of trajectories of these lengths."""
    assert options.policy_lambda is not None, "the preset has a default"
    if options.policy_lambda != "length-adaptive":
        return options.policy_lambda
    assert options.alpha is not None, "a preset with a lambda has a default"
    return length_adaptive_lambda(lengths, alpha=options.alpha)
