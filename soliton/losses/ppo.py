"""The clipped surrogate of PPO, used by GRPO and VAPO.

Owns: one loss. Does not know: how the proximal log-probs were made. With one update per batch they are
`policy_logprobs.detach()`, so the ratio is 1 and clipping never sees the real lag: `band_metrics` does.
Guarantees: a masked token has a gradient of exactly 0; nothing overflows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from soliton.losses.band import MAX_LOG_RATIO, sums
from soliton.losses.reduction import at_least_float32, bool_mask, check_packed, denominator, refuse
from soliton.losses.result import LossResult


def ppo_clip_loss(
    policy_logprobs: Tensor,
    proximal_logprobs: Tensor,
    advantages: Tensor,
    action_mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    num_action_tokens: int | None = None,
    trusted: Tensor | None = None,
) -> LossResult:
    """Bound the gain from moving the ratio away from 1, on the side where moving pays.

        r_t = exp(log pi_theta - log pi_proximal)
        loss = - sum_t min(r_t A_t, clip(r_t, 1 - clip_low, 1 + clip_high) A_t) / num_action_tokens   (PAPER section 6)

    Special case: policy = proximal has the gradient of plain advantage actor-critic.
    The log-ratio is limited to +-20 before exp; beyond, the token has no gradient.

    Args:
        policy_logprobs: [T], the only input that receives a gradient.
        proximal_logprobs: [T], of the learner's policy at the start of the batch ("latest pi_old").
        advantages: [T], finite on action tokens. Entries off the mask are not read, in any of the three.
        action_mask: [T] bool (or numbers that are 0 or 1).
        clip_low: in [0, 1].
        clip_high: >= 0 (0.28 with clip_low 0.2 is clip-higher).
        num_action_tokens: action tokens of ALL micro-batches and ranks; None: of this call.
        trusted: [T] bool; False: no gradient from this token, which stays in the denominator. None: all True.

    Returns:
        The loss (0 with a graph if there is no token) and metrics, sums and counts: `tokens`, `clipped_low`,
        `clipped_high` (trusted tokens whose gradient the clip removed), `untrusted`, `undefined` (an infinite
        log-ratio: no loss, no gradient), `proximal_ratio_sum`, `advantage_sum`, `loss_sum`.

    Raises:
        ValueError: shapes differ, a log-prob that is NaN or an advantage that is not finite on an action token
            (named), a bad clip, or a global count below this call's own.
    """
    check_packed(
        policy_logprobs=policy_logprobs,
        proximal_logprobs=proximal_logprobs,
        advantages=advantages,
        action_mask=action_mask,
        trusted=action_mask if trusted is None else trusted,
    )
    if not (0 <= clip_low <= 1 and 0 <= clip_high < math.inf):
        raise ValueError(f"clip_low must be in [0, 1] and clip_high finite >= 0, got {clip_low} and {clip_high}")
    mask = bool_mask(action_mask)
    trust = mask if trusted is None else mask & bool_mask(trusted, "trusted")
    policy, proximal = at_least_float32(policy_logprobs), at_least_float32(proximal_logprobs.detach())
    allowed = "an action token has a log-prob; NaN (absent) is allowed off the action mask only"
    refuse(policy, policy.isnan() & mask, "policy_logprobs", allowed)
    refuse(proximal, proximal.isnan() & mask, "proximal_logprobs", allowed)
    refuse(advantages, mask & ~advantages.isfinite(), "advantages", "an action token has a finite advantage")

    difference = policy - proximal
    used = trust & difference.isfinite()
    ratio = torch.where(used, difference, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    advantage = torch.where(used, at_least_float32(advantages.detach()), 0.0)
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    per_token = -torch.minimum(ratio * advantage, clipped * advantage)
    loss = per_token.sum() / denominator(mask, num_action_tokens)
    metrics = sums(
        tokens=mask,
        clipped_low=used & (advantage < 0) & (ratio < 1.0 - clip_low),
        clipped_high=used & (advantage > 0) & (ratio > 1.0 + clip_high),
        untrusted=mask & ~trust,
        undefined=trust & ~used,
        proximal_ratio_sum=torch.where(used, ratio, 0.0),
        advantage_sum=advantage,
        loss_sum=per_token,
    )
    return LossResult(loss, metrics)
