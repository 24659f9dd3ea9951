"""The critic's losses.

Owns: what a value is compared with its return by. Does not know: how returns were made, or which tokens are chosen.
Guarantees: returns and stored values receive no gradient; masked entries are not read.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import huber_loss, softplus

from soliton.losses.band import sums
from soliton.losses.reduction import at_least_float32, bool_mask, check_packed, refuse, token_mean
from soliton.losses.result import LossResult


def value_loss(
    values: Tensor, returns: Tensor, action_mask: Tensor, *, num_action_tokens: int | None = None
) -> LossResult:
    """Average the squared error of the critic, without a factor 1/2 and without clipping.

        loss = sum over action tokens of (V_t - R_t)^2 / num_action_tokens      (paper §2)

    Args:
        values: [T], with gradient.
        returns: [T], detached here. Entries off the mask are not read, in both; those on it are finite.
        action_mask: [T] bool (or numbers that are 0 or 1).
        num_action_tokens: action tokens of ALL micro-batches and ranks; None: of this call.

    Returns:
        The loss (0 with a graph if there is no token) and metrics, sums and counts: `tokens`, `squared_error_sum`,
        `error_sum` (V - R), `value_sum`, `return_sum`.

    Raises:
        ValueError: shapes differ, a value or return that is not finite on an action token (named), or a global count
            below this call's own.
    """
    value, target, mask = _checked(values, returns, action_mask)
    squared = (value - target).square()
    return LossResult(token_mean(squared, mask, num_action_tokens), _metrics(value, target, mask))


def clipped_value_loss(
    values: Tensor,
    returns: Tensor,
    pre_fit_values: Tensor,
    action_mask: Tensor,
    *,
    clip: float,
    num_action_tokens: int | None = None,
) -> LossResult:
    """Bound how far the fits on one batch may move a value from what it was before them, as PPO's code does.

        V'_t = V_pre + clamp(V_t - V_pre, -clip, clip)
        loss = sum over action tokens of max((V_t - R_t)^2, (V'_t - R_t)^2) / num_action_tokens
        (https://arxiv.org/abs/2005.12729, without the factor 1/2)

    A token whose value moved further than `clip` towards its return has no gradient; one that moved away keeps its own.
    Special cases: V = V_pre (the first fit) is `value_loss`, gradient included; so is an infinite clip.

    Args:
        values: [T], with gradient.
        returns: [T], detached here.
        pre_fit_values: [T], V from before the first fit on this batch, detached here. Entries off the mask are not
            read, in all three; those on it are finite.
        action_mask: [T] bool (or numbers that are 0 or 1).
        clip: > 0, in units of reward.
        num_action_tokens: action tokens of ALL micro-batches and ranks; None: of this call.

    Returns:
        As `value_loss`, and the metric `clipped` (tokens without gradient for the clip).

    Raises:
        ValueError: as `value_loss`, and for a clip that is not > 0.
    """
    if not clip > 0:
        raise ValueError(f"clip must be > 0, got {clip}")
    value, target, mask = _checked(values, returns, action_mask)
    check_packed(values=values, pre_fit_values=pre_fit_values)
    refuse(pre_fit_values, mask & ~pre_fit_values.isfinite(), "pre_fit_values", "an action token has a finite value")
    before = torch.where(mask, at_least_float32(pre_fit_values.detach()), 0.0)
    squared = (value - target).square()
    bounded = (before + (value - before).clamp(-clip, clip) - target).square()
    moved_too_far = mask & ((value - before).abs() > clip) & (bounded > squared)
    loss = token_mean(torch.maximum(squared, bounded), mask, num_action_tokens)
    return LossResult(loss, _metrics(value, target, mask) | sums(clipped=moved_too_far))


def huber_value_loss(
    values: Tensor, returns: Tensor, action_mask: Tensor, *, delta: float, num_action_tokens: int | None = None
) -> LossResult:
    """Average an error that is squared near 0 and grows linearly beyond `delta`, so that outliers pull less.

        e = V_t - R_t,   h(e) = e^2 if |e| <= delta else 2 delta |e| - delta^2
        loss = sum over action tokens of h / num_action_tokens          (Huber 1964, times 2)

    Twice the usual form, so that it is `value_loss` where |e| <= delta. Its gradient is at most 2 delta per token.

    Args:
        values: [T], with gradient.
        returns: [T], detached here. Entries off the mask are not read, in both; those on it are finite.
        action_mask: [T] bool (or numbers that are 0 or 1).
        delta: > 0 and finite, in units of reward.
        num_action_tokens: action tokens of ALL micro-batches and ranks; None: of this call.

    Returns:
        As `value_loss`.

    Raises:
        ValueError: as `value_loss`, and for a bad delta.
    """
    if not 0 < delta < float("inf"):
        raise ValueError(f"delta must be finite and > 0, got {delta}")
    value, target, mask = _checked(values, returns, action_mask)
    error = 2.0 * huber_loss(value, target, reduction="none", delta=delta)
    return LossResult(token_mean(error, mask, num_action_tokens), _metrics(value, target, mask))


def bce_value_loss(
    logits: Tensor, returns: Tensor, action_mask: Tensor, *, num_action_tokens: int | None = None
) -> LossResult:
    """Read the value as a probability, V = sigmoid(z), and average its cross-entropy with the return.

        loss = - sum over action tokens of (R_t log V_t + (1 - R_t) log(1 - V_t)) / num_action_tokens

    Computed from z as softplus(z) - R z, which neither overflows nor loses the gradient V - R of a confident mistake
    (that of the squared error is multiplied by V (1 - V), which vanishes there).
    Special case: z = 0 gives log 2 and the gradient (1/2 - R) / num_action_tokens.

    Args:
        logits: [T], z, with gradient.
        returns: [T], in [0, 1], detached here. Entries off the mask are not read, in both; those on it are finite.
        action_mask: [T] bool (or numbers that are 0 or 1).
        num_action_tokens: action tokens of ALL micro-batches and ranks; None: of this call.

    Returns:
        As `value_loss`; `squared_error_sum` and the like are of V = sigmoid(z).

    Raises:
        ValueError: as `value_loss`, and for a return outside [0, 1] on an action token (named).
    """
    logit, target, mask = _checked(logits, returns, action_mask)
    outside = mask & ((target < 0) | (target > 1))
    refuse(returns, outside, "returns", "the cross-entropy of a value is defined for returns in [0, 1]")
    per_token = softplus(logit) - target * logit
    value = torch.where(mask, logit.detach().sigmoid(), 0.0)
    return LossResult(token_mean(per_token, mask, num_action_tokens), _metrics(value, target, mask))


def _checked(values: Tensor, returns: Tensor, action_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Values with gradient, returns without, both 0 off the mask, and the mask as bool."""
    check_packed(values=values, returns=returns, action_mask=action_mask)
    mask = bool_mask(action_mask)
    refuse(values, mask & ~values.isfinite(), "values", "an action token has a finite value")
    refuse(returns, mask & ~returns.isfinite(), "returns", "an action token has a finite return")
    # Both are replaced BEFORE the square: the gradient 2 (V - R) * 0 of a masked NaN would be NaN.
    value = torch.where(mask, at_least_float32(values), 0.0)
    target = torch.where(mask, at_least_float32(returns.detach()), 0.0)
    return value, target, mask


def _metrics(value: Tensor, target: Tensor, mask: Tensor) -> dict[str, float]:
    error = value.detach() - target
    return sums(tokens=mask, squared_error_sum=error.square(), error_sum=error, value_sum=value, return_sum=target)
