"""The sequence-level clipped surrogate of GSPO.

Owns: the ratio of a whole trajectory, and its mean over trajectories. Does not know: how the old log-probs were made.
Guarantees: a trajectory must lie in one call, never split over micro-batches; nothing overflows; masked and untrusted
tokens have a gradient of exactly 0.
"""

from __future__ import annotations

import math
import operator

import torch
from torch import Tensor

from soliton.losses.band import MAX_LOG_RATIO, sums
from soliton.losses.reduction import at_least_float32
from soliton.losses.result import LossResult
from soliton.losses.surrogate import checked_inputs


def gspo_loss(
    policy_logprobs: Tensor,
    proximal_logprobs: Tensor,
    advantages: Tensor,
    action_mask: Tensor,
    segment_ids: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    num_trajectories: int | None = None,
    trusted: Tensor | None = None,
) -> LossResult:
    """Clip the geometric mean of the token ratios of each trajectory.

        s_i = exp( (1/l_i) sum_t (log pi_theta - log pi_old) ),   l_i action tokens
        loss = - sum_i min(s_i A_i, clip(s_i, 1 - clip_low, 1 + clip_high) A_i) / num_trajectories
        (GSPO, https://arxiv.org/abs/2507.18071)

    A_i is the mean of the advantages of its tokens, which is THE advantage where all are equal. The mean is over
    trajectories, as in the paper, not over tokens.
    Special cases: trajectories of one token are `ppo_clip_loss`; policy = old gives each token A_i / l_i.

    Args:
        policy_logprobs: [T], the only input that receives a gradient.
        proximal_logprobs: [T], of the policy that is clipped against.
        advantages: [T], finite on action tokens. Entries off the mask are not read, in any of the three.
        action_mask: [T] bool (or numbers that are 0 or 1).
        segment_ids: int64 [T], >= 0, trajectory of each token, any order.
        clip_low: in [0, 1]; the paper uses 3e-4, as the mean over tokens moves little.
        clip_high: finite, >= 0; the paper uses 4e-4.
        num_trajectories: those of ALL micro-batches and ranks; None: those of this call that have an action token.
        trusted: [T] bool; False: no gradient from this token, whose ratio still counts. None: all True.

    Returns:
        The loss (0 with a graph if there is no token) and metrics, sums and counts: `tokens`, `untrusted`,
        `trajectories`, `clipped_low`, `clipped_high` (trajectories whose gradient the clip removed), `undefined`
        (trajectories with an infinite log-ratio: no loss, no gradient), `sequence_ratio_sum`, `loss_sum`.
        The log of s_i is limited to +-20 before exp; beyond, the trajectory has no gradient.

    Raises:
        ValueError: as `ppo_clip_loss`, or segment ids that are not int64 >= 0.
    """
    if not (0 <= clip_low <= 1 and 0 <= clip_high < math.inf):
        raise ValueError(f"clip_low must be in [0, 1] and clip_high finite >= 0, got {clip_low} and {clip_high}")
    inputs = checked_inputs(policy_logprobs, advantages, action_mask, trusted, proximal_logprobs=proximal_logprobs)
    if segment_ids.shape != inputs.mask.shape or segment_ids.dtype != torch.int64 or bool((segment_ids < 0).any()):
        raise ValueError(f"segment_ids must be int64 >= 0, one per token, got {segment_ids.dtype} {segment_ids.shape}")
    difference = inputs.policy - at_least_float32(proximal_logprobs.detach())
    defined = inputs.mask & difference.isfinite()
    difference = torch.where(defined, difference, 0.0)
    difference = torch.where(inputs.trust, difference, difference.detach())

    num_segments = int(segment_ids.max()) + 1 if len(segment_ids) else 0
    per_segment = difference.new_zeros(num_segments)
    lengths = per_segment.index_add(0, segment_ids, inputs.mask.to(difference.dtype))
    present = lengths > 0
    broken = per_segment.index_add(0, segment_ids, (inputs.mask & ~defined).to(difference.dtype)) > 0
    used = present & ~broken
    length = lengths.clamp(min=1.0)
    log_ratio = per_segment.index_add(0, segment_ids, difference) / length
    ratio = torch.where(used, log_ratio, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    mean_advantage = per_segment.index_add(0, segment_ids, torch.where(inputs.mask, inputs.advantage, 0.0)) / length
    advantage = torch.where(used, mean_advantage, 0.0)
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    per_trajectory = -torch.minimum(ratio * advantage, clipped * advantage)
    metrics = sums(
        tokens=inputs.mask,
        untrusted=inputs.mask & ~inputs.trust,
        trajectories=present,
        clipped_low=used & (advantage < 0) & (ratio < 1.0 - clip_low),
        clipped_high=used & (advantage > 0) & (ratio > 1.0 + clip_high),
        undefined=present & broken,
        sequence_ratio_sum=torch.where(used, ratio, 0.0),
        loss_sum=per_trajectory,
    )
    return LossResult(per_trajectory.sum() / _trajectories(present, num_trajectories), metrics)


def _trajectories(present: Tensor, num_trajectories: int | None) -> int:
    own = int(present.sum())
    if num_trajectories is None:
        return max(own, 1)
    total = operator.index(num_trajectories)
    if total < own:
        raise ValueError(
            f"num_trajectories is {total} but this call alone has {own}; pass the count of the whole optimiser batch, "
            "all micro-batches and ranks together"
        )
    return max(total, 1)
