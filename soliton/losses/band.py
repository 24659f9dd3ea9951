"""Where each token's importance ratio lies against a trust band, and the metrics every method logs about it.

Owns: the log-ratio, the decision low / inside / high, sums over ratios, the rule for merging metrics.
Does not know: advantages, gradients, which method is running.
Guarantees: the decision is made on the log-ratio, before any exp can overflow; a token is in exactly one of inside,
low, high, undefined.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from soliton.losses.reduction import at_least_float32, bool_mask, check_packed, refuse

MAX_LOG_RATIO = 20.0
"""In metrics a ratio beyond e**20 counts as e**20 (4.9e8), so that one broken token leaves every sum finite."""


@dataclass(frozen=True)
class BandSplit:
    """The action tokens by where their log-ratio lies; bool [T] each, False off the action mask.

    Attributes:
        log_ratio: detached [T], log policy minus log rollout; 0 off the mask. May be infinite, or NaN where undefined.
        inside: strictly between the bounds.
        low: at or below the lower bound, minus infinity included.
        high: at or above the upper bound, plus infinity included.
        undefined: both log-probs are the same infinity.
    """

    log_ratio: Tensor
    inside: Tensor
    low: Tensor
    high: Tensor
    undefined: Tensor


def split_by_band(
    policy_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor, low: float, high: float
) -> BandSplit:
    """Decide for each action token on which side of the open band (low, high) of ratios it lies.

    The log-ratio is compared in float32, the precision in which log-probs are recorded: a ratio that IS a bound is
    then outside also where its float64 logarithm is an ulp off. `low` <= 0 means no lower bound.

    Raises:
        ValueError: a log-prob that is NaN on an action token (named), or bounds that are no band.
    """
    if not (low < high and 0 < high <= 1e30):
        raise ValueError(f"the band of ratios must satisfy low < high and 0 < high <= 1e30, got ({low}, {high})")
    policy, rollout = at_least_float32(policy_logprobs.detach()), at_least_float32(rollout_logprobs.detach())
    allowed = "an action token has a log-prob; NaN (absent) is allowed off the action mask only"
    refuse(policy, policy.isnan() & mask, "policy_logprobs", allowed)
    refuse(rollout, rollout.isnan() & mask, "rollout_logprobs", allowed)
    log_ratio = torch.where(mask, policy - rollout, 0.0)
    compared = log_ratio.float()
    below = compared <= (math.log(low) if low > 0 else -math.inf)
    above = compared >= math.log(high)
    undefined = compared.isnan()
    inside = mask & ~(below | above | undefined)
    return BandSplit(log_ratio, inside, below & mask, above & mask, undefined & mask)


def band_metrics(
    policy_logprobs: Tensor, rollout_logprobs: Tensor, action_mask: Tensor, *, low: float, high: float
) -> dict[str, float]:
    """Count the action tokens that a trust band would mask, whatever the method does with them.

        log_ratio = log pi_policy - log pi_rollout;   masked unless low < exp(log_ratio) < high     (paper §3.1)

    Args:
        policy_logprobs: [T], of the policy being trained.
        rollout_logprobs: [T], recorded at sampling. Masked entries of both are not read.
        action_mask: [T] bool (or numbers that are 0 or 1).
        low: lower bound of the RATIO (1 - eps_low), open; <= 0 means none.
        high: upper bound of the ratio (1 + eps_high), open.

    Returns:
        Sums and counts over action tokens: `tokens`, `masked_low`, `masked_high`, `masked_undefined` (both log-probs
        the same infinity), and over those with a finite log-ratio `finite_tokens`, `log_ratio_sum`,
        `abs_log_ratio_sum`, `ratio_sum`, `ratio_sq_sum`; and one maximum, `ratio_max` (0 without tokens). Ratios
        beyond e**20 count as e**20. Combine with `merge_metrics`.

    Raises:
        ValueError: shapes differ, NaN log-prob on an action token (named), or bounds that are no band.
    """
    check_packed(policy_logprobs=policy_logprobs, rollout_logprobs=rollout_logprobs, action_mask=action_mask)
    split = split_by_band(policy_logprobs, rollout_logprobs, bool_mask(action_mask), low, high)
    metrics = band_sums(split)
    finite = split.log_ratio[(split.inside | split.low | split.high) & split.log_ratio.isfinite()]
    metrics["ratio_max"] = math.exp(min(float(finite.max()), MAX_LOG_RATIO)) if len(finite) else 0.0
    return metrics


def band_sums(split: BandSplit) -> dict[str, float]:
    """The additive part of `band_metrics`."""
    action = split.inside | split.low | split.high | split.undefined
    finite = action & split.log_ratio.isfinite()
    log_ratio = torch.where(finite, split.log_ratio, 0.0).double()
    ratio = torch.where(finite, log_ratio.clamp(max=MAX_LOG_RATIO).exp(), 0.0)
    return sums(
        tokens=action,
        masked_low=split.low,
        masked_high=split.high,
        masked_undefined=split.undefined,
        finite_tokens=finite,
        log_ratio_sum=log_ratio,
        abs_log_ratio_sum=log_ratio.abs(),
        ratio_sum=ratio,
        ratio_sq_sum=ratio.square(),
    )


def sums(**tensors: Tensor) -> dict[str, float]:
    """Sum each tensor in float64; one transfer from the device for all of them."""
    totals = torch.stack([tensor.detach().sum(dtype=torch.float64) for tensor in tensors.values()])
    return dict(zip(tensors, totals.tolist(), strict=True))


def merge_metrics(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Combine the metrics of micro-batches or ranks: keys that end in `_max` by maximum, all others by sum.

    Property: merging the parts of a split gives the metrics of the whole (fault E2).
    """
    merged: dict[str, float] = {}
    for part in parts:
        for key, value in part.items():
            if key not in merged:
                merged[key] = value
            else:
                merged[key] = max(merged[key], value) if key.endswith("_max") else merged[key] + value
    return merged
