"""What may be added to an actor loss: entropy, distance from a reference policy, imitation of what succeeded.

Owns: three terms, each to be multiplied by a weight of its own. Does not know: the loss they are added to.
Guarantees: masked and untrusted tokens have a gradient of exactly 0 and stay in the denominator; nothing overflows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from soliton.losses.band import MAX_LOG_RATIO, sums
from soliton.losses.reduction import at_least_float32, bool_mask, check_packed, denominator, refuse, token_mean
from soliton.losses.result import LossResult


def entropy_loss(
    entropies: Tensor, action_mask: Tensor, *, num_action_tokens: int | None = None, trusted: Tensor | None = None
) -> LossResult:
    """Minus the mean entropy of the distributions that tokens were chosen from: minimising it keeps the policy random.

        loss = - sum over action tokens of H(pi_theta(. | s_t)) / num_action_tokens

    Args:
        entropies: [T], nats, the only input that receives a gradient. Entries off the mask are not read.
        action_mask: [T] bool (or numbers that are 0 or 1).
        num_action_tokens: action tokens of ALL micro-batches and ranks; None: of this call.
        trusted: [T] bool; False: no gradient from this token, which stays in the denominator. None: all True.

    Returns:
        The loss (0 with a graph if there is no token) and the metrics `tokens` and `entropy_sum`, over trusted tokens.

    Raises:
        ValueError: shapes differ, an entropy that is not finite on an action token (named), or a global count below
            this call's own.
    """
    mask, used = _masks(action_mask, trusted, entropies=entropies)
    refuse(entropies, mask & ~entropies.isfinite(), "entropies", "an action token has a finite entropy")
    entropy = torch.where(used, at_least_float32(entropies), 0.0)
    return LossResult(-token_mean(entropy, mask, num_action_tokens), sums(tokens=used, entropy_sum=entropy))


def reference_kl_loss(
    policy_logprobs: Tensor,
    reference_logprobs: Tensor,
    action_mask: Tensor,
    *,
    num_action_tokens: int | None = None,
    trusted: Tensor | None = None,
) -> LossResult:
    """Estimate KL(pi_theta || pi_reference) from the sampled tokens alone, as GRPO does; minimising it stays near.

        d_t = log pi_reference - log pi_theta,   k_t = exp(d_t) - d_t - 1 >= 0
        loss = sum over action tokens of k_t / num_action_tokens    (https://arxiv.org/abs/2402.03300, Eq. 4)

    Unbiased where the token was sampled from pi_theta; on data of older policies it is not, and nothing corrects it.
    The gradient with respect to log pi_theta is 1 - exp(d_t). d_t is limited to +-20; beyond, no gradient.
    Special case: policy = reference gives 0 and no gradient.

    Args:
        policy_logprobs: [T], the only input that receives a gradient.
        reference_logprobs: [T]. Entries off the mask are not read, in both; those on it are no NaN.
        action_mask: [T] bool (or numbers that are 0 or 1).
        num_action_tokens: action tokens of ALL micro-batches and ranks; None: of this call.
        trusted: [T] bool; False: no gradient from this token, which stays in the denominator. None: all True.

    Returns:
        The loss (0 with a graph if there is no token) and the metrics `tokens` and `kl_sum`, over trusted tokens of a
        finite d.

    Raises:
        ValueError: shapes differ, a log-prob that is NaN on an action token (named), or a global count below this
            call's own.
    """
    mask, trust = _masks(action_mask, trusted, policy_logprobs=policy_logprobs, reference_logprobs=reference_logprobs)
    for name, logprobs in (("policy_logprobs", policy_logprobs), ("reference_logprobs", reference_logprobs)):
        refuse(logprobs, mask & logprobs.isnan(), name, "an action token has a log-prob")
    difference = at_least_float32(reference_logprobs.detach()) - at_least_float32(policy_logprobs)
    used = trust & difference.isfinite()
    gap = torch.where(used, difference, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    divergence = gap.exp() - gap - 1.0
    return LossResult(token_mean(divergence, mask, num_action_tokens), sums(tokens=used, kl_sum=divergence))


def positive_example_loss(
    policy_logprobs: Tensor,
    positive: Tensor,
    action_mask: Tensor,
    *,
    num_positive_tokens: int | None = None,
    trusted: Tensor | None = None,
) -> LossResult:
    """Raise the probability of everything in the trajectories that succeeded, whatever its advantage (VAPO).

        loss = - sum over action tokens of successful trajectories of log pi_theta / num_positive_tokens
        (https://arxiv.org/abs/2504.05118; their weight is 0.1)

    Special cases: no success in the batch gives 0; all successful is the loss of supervised fine-tuning.

    Args:
        policy_logprobs: [T], the only input that receives a gradient. Entries off the mask are not read.
        positive: [T] bool, whether the token's trajectory succeeded.
        action_mask: [T] bool (or numbers that are 0 or 1).
        num_positive_tokens: action tokens of the successful trajectories of ALL micro-batches and ranks; None: of this
            call.
        trusted: [T] bool; False: no gradient from this token, which stays in the denominator. None: all True.

    Returns:
        The loss (0 with a graph if there is no token) and the metrics `tokens` and `logprob_sum`, over trusted tokens
        of successful trajectories with a finite log-prob.

    Raises:
        ValueError: shapes differ, a log-prob that is NaN on an action token (named), or a global count below this
            call's own.
    """
    mask, trust = _masks(action_mask, trusted, policy_logprobs=policy_logprobs, positive=positive)
    refuse(policy_logprobs, mask & policy_logprobs.isnan(), "policy_logprobs", "an action token has a log-prob")
    counted = mask & bool_mask(positive, "positive")
    used = counted & trust & policy_logprobs.isfinite()
    logprobs = torch.where(used, at_least_float32(policy_logprobs), 0.0)
    loss = -logprobs.sum() / denominator(counted, num_positive_tokens)
    return LossResult(loss, sums(tokens=used, logprob_sum=logprobs))


def _masks(action_mask: Tensor, trusted: Tensor | None, **tensors: Tensor) -> tuple[Tensor, Tensor]:
    """The action mask, and the action tokens that may carry a gradient."""
    check_packed(**tensors, action_mask=action_mask, trusted=action_mask if trusted is None else trusted)
    mask = bool_mask(action_mask)
    return mask, mask if trusted is None else mask & bool_mask(trusted, "trusted")
