"""REINFORCE: the policy gradient without a ratio.

Owns: one loss. Does not know: baselines, importance weights (V-trace puts its own into the advantages).
Guarantees: a token that is masked, untrusted or of an infinite log-prob has a gradient of exactly 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from soliton.losses.band import sums
from soliton.losses.reduction import denominator
from soliton.losses.result import LossResult
from soliton.losses.surrogate import checked_inputs


def reinforce_loss(
    policy_logprobs: Tensor,
    advantages: Tensor,
    action_mask: Tensor,
    *,
    num_action_tokens: int | None = None,
    trusted: Tensor | None = None,
) -> LossResult:
    """Raise the log-prob of each token by its advantage, whatever policy it was sampled from.

        loss = - sum_t A_t * log pi_theta(a_t | s_t) / num_action_tokens
        (Williams 1992, https://doi.org/10.1007/BF00992696)

    Special case: `dis_loss` where every ratio is 1. On data of an older policy it is biased: nothing corrects for it.

    Args:
        policy_logprobs: [T], the only input that receives a gradient.
        advantages: [T], finite on action tokens. Entries off the mask are not read, in both.
        action_mask: [T] bool (or numbers that are 0 or 1).
        num_action_tokens: action tokens of ALL micro-batches and ranks; None: of this call.
        trusted: [T] bool; False: no gradient from this token, which stays in the denominator. None: all True.

    Returns:
        The loss (0 with a graph if there is no token) and metrics, sums and counts: `tokens`, `untrusted`, `undefined`
        (an infinite log-prob: no loss, no gradient), `advantage_sum`, `loss_sum`.

    Raises:
        ValueError: shapes differ, a log-prob that is NaN or an advantage that is not finite on an action token
            (named), or a global count below this call's own.
    """
    inputs = checked_inputs(policy_logprobs, advantages, action_mask, trusted)
    used = inputs.trust & inputs.policy.isfinite()
    advantage = torch.where(used, inputs.advantage, 0.0)
    per_token = -advantage * torch.where(used, inputs.policy, 0.0)
    metrics = sums(
        tokens=inputs.mask,
        untrusted=inputs.mask & ~inputs.trust,
        undefined=inputs.trust & ~used,
        advantage_sum=advantage,
        loss_sum=per_token,
    )
    return LossResult(per_token.sum() / denominator(inputs.mask, num_action_tokens), metrics)
