"""Direct double-sided importance sampling: SAO's actor loss.

Owns: the weight f(r) and the loss. Does not know: how advantages or log-probs were made.
Guarantees: there is no pi_old and no second forward pass, the ratio is against the log-prob recorded at sampling; a
token outside the band has a gradient of exactly 0 and stays in the denominator; nothing overflows before it is masked.
"""

from __future__ import annotations

import torch
from torch import Tensor

from soliton.losses.band import band_sums, split_by_band, sums
from soliton.losses.reduction import at_least_float32, bool_mask, check_packed, denominator, refuse
from soliton.losses.result import LossResult


def dis_loss(
    policy_logprobs: Tensor,
    rollout_logprobs: Tensor,
    advantages: Tensor,
    action_mask: Tensor,
    *,
    eps_low: float,
    eps_high: float,
    num_action_tokens: int | None = None,
    trusted: Tensor | None = None,
) -> LossResult:
    """Weight REINFORCE by the importance ratio inside an open band, and by 0 outside it.

        r_t = exp(log pi_theta - log pi_rollout),   f(r) = r if 1 - eps_low < r < 1 + eps_high else 0
        loss = - sum_t sg[f(r_t)] * A_t * log pi_theta(a_t | s_t) / num_action_tokens       (paper §3.1, Eq. 1-3)

    sg: f(r) is detached (a choice: otherwise the gradient has a factor 1 + log pi that flips its sign). The band does
    not depend on the sign of A. Special case: r = 1 everywhere is plain advantage actor-critic.

    Args:
        policy_logprobs: [T], the only input that receives a gradient.
        rollout_logprobs: [T], recorded at sampling; NaN off the mask.
        advantages: [T], finite on action tokens. Entries off the mask are not read, in any of the three.
        action_mask: [T] bool (or numbers that are 0 or 1).
        eps_low: >= 0; 1 or more means no lower bound.
        eps_high: > 0 and at most 1e30. Neither has a default: a band that is symmetric by accident is another method.
        num_action_tokens: action tokens of ALL micro-batches and ranks; None: of this call.
        trusted: [T] bool; False: no gradient from this token, which stays in the denominator. None: all True.

    Returns:
        The loss (0 with a graph if there is no token) and metrics: the additive ones of `band_metrics` over all action
        tokens, and `kept` (trusted and inside), `untrusted`, `masked_positive`, `masked_negative` (outside the band,
        by sign of A), `weight_sum`, `advantage_sum`, `loss_sum` (the numerator).
        An infinite log-prob is outside the band: weight 0, loss and gradient finite.

    Raises:
        ValueError: shapes differ, a log-prob that is NaN or an advantage that is not finite on an action token
            (named), a bad eps, or a global count below this call's own.
    """
    check_packed(
        policy_logprobs=policy_logprobs,
        rollout_logprobs=rollout_logprobs,
        advantages=advantages,
        action_mask=action_mask,
        trusted=action_mask if trusted is None else trusted,
    )
    if not (eps_low >= 0 and 0 < eps_high <= 1e30):
        raise ValueError(f"eps_low must be >= 0 and eps_high in (0, 1e30], got {eps_low} and {eps_high}")
    mask = bool_mask(action_mask)
    trust = mask if trusted is None else mask & bool_mask(trusted, "trusted")
    advantage = at_least_float32(advantages.detach())
    refuse(advantage, mask & ~advantage.isfinite(), "advantages", "an action token has a finite advantage")

    split = split_by_band(policy_logprobs, rollout_logprobs, mask, 1.0 - eps_low, 1.0 + eps_high)
    keep = split.inside & trust
    # exp only of what is kept: an infinite ratio times a mask of 0 is NaN, in the loss and in the gradient (fault C11).
    weight = torch.where(keep, torch.where(keep, split.log_ratio, 0.0).exp(), 0.0)
    kept_advantage = torch.where(keep, advantage, 0.0)
    per_token = -(weight * kept_advantage) * torch.where(keep, at_least_float32(policy_logprobs), 0.0)
    loss = per_token.sum() / denominator(mask, num_action_tokens)

    outside = mask & ~split.inside
    extra = sums(
        kept=keep,
        untrusted=mask & ~trust,
        masked_positive=outside & (advantage > 0),
        masked_negative=outside & (advantage < 0),
        weight_sum=weight,
        advantage_sum=torch.where(mask, advantage, 0.0),
        loss_sum=per_token,
    )
    return LossResult(loss, band_sums(split) | extra)
