"""The clipped surrogate of PPO, for one ratio.

Owns: one loss and the metrics of every clipped one. Does not know: how the proximal log-probs were made. Where they are
`policy_logprobs.detach()` (GRPO, VAPO) the ratio is 1 and clipping never sees the real lag: `band_metrics` does.
Guarantees: a masked token has a gradient of exactly 0; nothing overflows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from soliton.losses.band import sums
from soliton.losses.reduction import denominator
from soliton.losses.result import LossResult
from soliton.losses.surrogate import CheckedInputs, Surrogate, checked_inputs, clipped_surrogate


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
        loss = - sum_t min(r_t A_t, clip(r_t, 1 - clip_low, 1 + clip_high) A_t) / num_action_tokens

    From PPO (https://arxiv.org/abs/1707.06347). Special case: policy = proximal has the gradient of plain advantage
    actor-critic. The log-ratio is limited to +-20 before exp; beyond, the token has no gradient.

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
    if not (0 <= clip_low <= 1 and 0 <= clip_high < math.inf):
        raise ValueError(f"clip_low must be in [0, 1] and clip_high finite >= 0, got {clip_low} and {clip_high}")
    inputs = checked_inputs(policy_logprobs, advantages, action_mask, trusted, proximal_logprobs=proximal_logprobs)
    surrogate = clipped_surrogate(inputs, proximal_logprobs, 1.0 - clip_low, 1.0 + clip_high)
    return surrogate_loss(inputs, surrogate, num_action_tokens)


def surrogate_loss(inputs: CheckedInputs, surrogate: Surrogate, num_action_tokens: int | None) -> LossResult:
    """Minus the mean of a surrogate over the action tokens of the whole batch, with the metrics of `ppo_clip_loss`."""
    per_token = -surrogate.per_token
    metrics = sums(
        tokens=inputs.mask,
        clipped_low=surrogate.clipped_low,
        clipped_high=surrogate.clipped_high,
        untrusted=inputs.mask & ~inputs.trust,
        undefined=inputs.trust & ~surrogate.used,
        proximal_ratio_sum=torch.where(surrogate.used, surrogate.ratio, 0.0),
        advantage_sum=surrogate.advantage,
        loss_sum=per_token,
    )
    return LossResult(per_token.sum() / denominator(inputs.mask, num_action_tokens), metrics)
