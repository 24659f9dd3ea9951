"""Advantages and targets from a critic, shared by every method that has one (PAPER section 4)."""

from __future__ import annotations

import torch
from torch import Tensor

from soliton.advantages import length_adaptive_lambda, skip_observation_gae
from soliton.algorithms.options import MethodOptions
from soliton.learner.method import CriticUse, PackedBatch


def critic_use(options: MethodOptions, preset: CriticUse) -> CriticUse:
    """The preset's use of its critic, with what the recipe set instead."""
    return CriticUse(
        updates=options.critic_updates or preset.updates,
        trainable=options.critic_trainable or preset.trainable,
        train_router=options.train_router or preset.train_router,
        advantage_values=options.advantage_values or preset.advantage_values,
        pretrained=preset.pretrained,
    )


def policy_advantages(batch: PackedBatch, options: MethodOptions) -> Tensor:
    """Skip-observation GAE at the policy's lambda; float32 [T], 0 off the action mask."""
    return _gae(batch, options.gamma, _policy_lambda(batch, options))


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
    if options.policy_lambda != "length-adaptive":
        return options.policy_lambda
    counts = torch.bincount(batch.segment_ids, weights=batch.action_mask.double(), minlength=len(batch.groups))
    return length_adaptive_lambda(counts.long(), alpha=options.alpha)
