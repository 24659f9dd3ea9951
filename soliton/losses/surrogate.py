"""The clipped surrogate that PPO, DCPO and the two-ratio losses share.

Owns: min(r A, clip(r) A) per token, safe against overflow, and its counts. Does not know: whose ratio it is, how tokens
are reduced.
Guarantees: a token that is masked, untrusted or of an infinite log-ratio has a value and a gradient of exactly 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from soliton.losses.band import MAX_LOG_RATIO
from soliton.losses.reduction import at_least_float32, bool_mask, check_packed, refuse

HAS_LOGPROB = "an action token has a log-prob; NaN (absent) is allowed off the action mask only"


@dataclass(frozen=True)
class CheckedInputs:
    """What a surrogate needs of each token, checked.

    Attributes:
        mask: bool [T], action tokens.
        trust: bool [T], action tokens that may carry a gradient.
        policy: [T] with gradient, at least float32; may be anything off the mask.
        advantage: detached [T], at least float32; may be anything off the mask.
    """

    mask: Tensor
    trust: Tensor
    policy: Tensor
    advantage: Tensor


def checked_inputs(
    policy_logprobs: Tensor, advantages: Tensor, action_mask: Tensor, trusted: Tensor | None, **others: Tensor
) -> CheckedInputs:
    """Check what every policy loss takes; `others` are log-probs of other policies, by the name of their argument.

    Raises:
        ValueError: shapes differ, a log-prob that is NaN or an advantage that is not finite on an action token (named).
    """
    check_packed(
        policy_logprobs=policy_logprobs,
        **others,
        advantages=advantages,
        action_mask=action_mask,
        trusted=action_mask if trusted is None else trusted,
    )
    mask = bool_mask(action_mask)
    trust = mask if trusted is None else mask & bool_mask(trusted, "trusted")
    for name, logprobs in {"policy_logprobs": policy_logprobs, **others}.items():
        refuse(logprobs, logprobs.isnan() & mask, name, HAS_LOGPROB)
    refuse(advantages, mask & ~advantages.isfinite(), "advantages", "an action token has a finite advantage")
    return CheckedInputs(mask, trust, at_least_float32(policy_logprobs), at_least_float32(advantages.detach()))


@dataclass(frozen=True)
class Surrogate:
    """The clipped surrogate of each token.

    Attributes:
        per_token: [T] with gradient, min(r A, clip(r) A), to be maximised.
        ratio: [T] with gradient; 1 where not used.
        advantage: [T], 0 where not used.
        used: bool [T], trusted tokens with a finite log-ratio.
        clipped_low, clipped_high: bool [T], used tokens whose gradient the clip removed.
    """

    per_token: Tensor
    ratio: Tensor
    advantage: Tensor
    used: Tensor
    clipped_low: Tensor
    clipped_high: Tensor


def clipped_surrogate(
    inputs: CheckedInputs, proximal_logprobs: Tensor, low: float | Tensor, high: float | Tensor
) -> Surrogate:
    """Compute min(r A, clip(r, low, high) A) with r = exp(log pi_theta - log pi_old); no gradient into pi_old.

    The log-ratio is limited to +-20 before exp; beyond, the token has no gradient.

    Args:
        inputs: see `CheckedInputs`.
        proximal_logprobs: [T].
        low: lower bound of the ratio, one for all tokens or one each.
        high: upper bound.
    """
    difference = inputs.policy - at_least_float32(proximal_logprobs.detach())
    used = inputs.trust & difference.isfinite()
    ratio = torch.where(used, difference, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    advantage = torch.where(used, inputs.advantage, 0.0)
    low, high = (torch.as_tensor(bound, dtype=ratio.dtype, device=ratio.device) for bound in (low, high))
    clipped = torch.clamp(ratio, low, high)
    return Surrogate(
        per_token=torch.minimum(ratio * advantage, clipped * advantage),
        ratio=ratio,
        advantage=advantage,
        used=used,
        clipped_low=used & (advantage < 0) & (ratio < low),
        clipped_high=used & (advantage > 0) & (ratio > high),
    )


def surrogate_within(
    inputs: CheckedInputs, proximal_logprobs: Tensor, bounds: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> Surrogate:
    """`clipped_surrogate` between bounds of each token's ratio that depend on its old log-prob.

    Args:
        inputs: see `CheckedInputs`.
        proximal_logprobs: [T].
        bounds: old log-probs [T], 0 where masked -> lower and upper bounds [T].
    """
    read = torch.where(inputs.mask, proximal_logprobs.detach(), 0.0)  # a masked NaN would make NaN bounds
    return clipped_surrogate(inputs, proximal_logprobs, *bounds(read))
