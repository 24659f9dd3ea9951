"""Advantages brought to mean 0 and deviation 1 over a batch, under one of two measures.

Owns: both formulas. Does not know: how advantages were made, micro-batches (it takes the whole optimiser batch).
Guarantees: masked entries are not read and stay 0; a batch without spread gives exactly 0.
"""

from __future__ import annotations

import torch
from torch import Tensor


def normalised_over_action_tokens(
    advantages: Tensor, action_mask: Tensor, segment_ids: Tensor, *, eps: float = 1e-6
) -> Tensor:
    """Normalise with every action token counting the same, so that long trajectories decide the statistics.

        A'_t = (A_t - m) / (s + eps),   m = mean of A over the N action tokens,   s^2 = sum (A_t - m)^2 / (N - 1)

    Args:
        advantages: floating [T] of the whole optimiser batch, finite on action tokens.
        action_mask: bool [T].
        segment_ids: int64 [T]; not read, the measure does not ask for trajectories.
        eps: >= 0, added to the deviation.

    Returns:
        float32 [T], without gradient, 0 off the mask. One action token alone has no deviation and is left as it is.

    Raises:
        ValueError: an advantage that is not finite on an action token (named).
    """
    del segment_ids
    weights = action_mask.double()
    return _normalised(advantages, action_mask, weights, int(action_mask.sum()), eps)


def normalised_over_trajectories(
    advantages: Tensor, action_mask: Tensor, segment_ids: Tensor, *, eps: float = 1e-6
) -> Tensor:
    """Normalise with every trajectory counting the same, its action tokens sharing its weight.

        w_t = 1 / (S l_t),   m = sum w_t A_t,   s^2 = S / (S - 1) * sum w_t (A_t - m)^2,   A'_t = (A_t - m) / (s + eps)

    S trajectories, l_t action tokens of that of token t. Special case: one advantage per trajectory gives its
    z-score among the S (sample deviation), whatever the lengths.

    Args:
        advantages: floating [T] of the whole optimiser batch, finite on action tokens.
        action_mask: bool [T].
        segment_ids: int64 [T], trajectory of each token, from 0.
        eps: >= 0, added to the deviation.

    Returns:
        float32 [T], without gradient, 0 off the mask. One trajectory alone has no deviation and is left as it is.

    Raises:
        ValueError: an advantage that is not finite on an action token (named).
    """
    num_segments = int(segment_ids.max()) + 1 if len(segment_ids) else 0
    lengths = torch.bincount(segment_ids[action_mask], minlength=num_segments)
    weights = torch.where(action_mask, 1.0 / lengths.clamp(min=1).double()[segment_ids], 0.0)
    return _normalised(advantages, action_mask, weights, int((lengths > 0).sum()), eps)


def _normalised(advantages: Tensor, mask: Tensor, weights: Tensor, count: int, eps: float) -> Tensor:
    """Weights [T], float64, sum to `count`, the number of units that count the same."""
    bad = mask & ~advantages.isfinite()
    if bool(bad.any()):
        i = int(bad.int().argmax())
        raise ValueError(f"advantages[{i}] = {advantages[i].item()}; an action token has a finite advantage")
    advantage = torch.where(mask, advantages.detach().double(), 0.0)
    if count < 2:
        return advantage.float()  # a deviation of one is none (fault A9)
    mean = (weights * advantage).sum() / count
    deviation = torch.where(mask, advantage - mean, 0.0)
    std = ((weights * deviation.square()).sum() / (count - 1)).sqrt()
    of_actions = advantage[mask]
    # Equal advantages leave deviations of rounding size, which eps alone would not turn into an exact 0.
    if not bool(of_actions.max() > of_actions.min()):
        return torch.zeros_like(advantage, dtype=torch.float32)
    return (deviation / (std + eps)).float()
