"""PPO's clip times a weight for the policy that sampled: the losses of AReaL (decoupled PPO) and IcePop.

Owns: one loss with two ratios. Does not know: how the proximal log-probs were made.
Guarantees: those of `ppo_clip_loss`; the weight carries no gradient and is decided before any exp can overflow.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from soliton.losses.band import sums
from soliton.losses.ppo import surrogate_loss
from soliton.losses.reduction import at_least_float32
from soliton.losses.result import LossResult
from soliton.losses.surrogate import checked_inputs, clipped_surrogate


def two_ratio_clip_loss(
    policy_logprobs: Tensor,
    proximal_logprobs: Tensor,
    rollout_logprobs: Tensor,
    advantages: Tensor,
    action_mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    weight_low: float,
    weight_high: float,
    num_action_tokens: int | None = None,
    trusted: Tensor | None = None,
) -> LossResult:
    """Clip the step from the proximal policy, and weight it by how far that one is from the policy that sampled.

        w_t = pi_proximal / pi_rollout,   M(w) = w if weight_low <= w <= weight_high else 0      (M(w) is detached)
        r_t = pi_theta / pi_proximal
        loss = - sum_t M(w_t) min(r_t A_t, clip(r_t, 1 - clip_low, 1 + clip_high) A_t) / num_action_tokens

    AReaL (https://arxiv.org/abs/2505.24298): no lower bound. IcePop (https://arxiv.org/abs/2510.18855): both bounds.
    Special cases: proximal = rollout is `ppo_clip_loss`; proximal = policy has the gradient of `dis_loss`, but for the
    bounds, which are closed here.

    Args:
        policy_logprobs: [T], the only input that receives a gradient.
        proximal_logprobs: [T], of the learner's policy at the start of the batch.
        rollout_logprobs: [T], recorded at sampling.
        advantages: [T], finite on action tokens. Entries off the mask are not read, in any of the four.
        action_mask: [T] bool (or numbers that are 0 or 1).
        clip_low: in [0, 1].
        clip_high: finite, >= 0.
        weight_low: >= 0; 0 means no lower bound.
        weight_high: > 0, at most 1e30, not below `weight_low`.
        num_action_tokens: action tokens of ALL micro-batches and ranks; None: of this call.
        trusted: [T] bool; False: no gradient from this token, which stays in the denominator. None: all True.

    Returns:
        The loss and the metrics of `ppo_clip_loss`, and `weight_sum` and `weight_dropped` (tokens with M = 0).

    Raises:
        ValueError: as `ppo_clip_loss`, and for bad bounds of the weight.
    """
    if not (0 <= clip_low <= 1 and 0 <= clip_high < math.inf):
        raise ValueError(f"clip_low must be in [0, 1] and clip_high finite >= 0, got {clip_low} and {clip_high}")
    if not (0 <= weight_low <= weight_high and 0 < weight_high <= 1e30):
        raise ValueError(
            f"the weight's bounds must satisfy 0 <= low <= high and 0 < high <= 1e30, got {weight_low}, {weight_high}"
        )
    inputs = checked_inputs(
        policy_logprobs,
        advantages,
        action_mask,
        trusted,
        proximal_logprobs=proximal_logprobs,
        rollout_logprobs=rollout_logprobs,
    )
    log_weight = at_least_float32(proximal_logprobs.detach()) - at_least_float32(rollout_logprobs.detach())
    compared = log_weight.float()
    inside = (compared <= math.log(weight_high)) & compared.isfinite() & inputs.mask
    if weight_low > 0:
        inside &= compared >= math.log(weight_low)
    weight = torch.where(inside, torch.where(inside, log_weight, 0.0).exp(), 0.0)
    surrogate = clipped_surrogate(inputs, proximal_logprobs, 1.0 - clip_low, 1.0 + clip_high)
    result = surrogate_loss(inputs, replace(surrogate, per_token=weight * surrogate.per_token), num_action_tokens)
    return replace(result, metrics=result.metrics | sums(weight_sum=weight, weight_dropped=inputs.mask & ~inside))
