"""A clip on how far the probability of a token moved, not on its ratio.

Owns: the bounds and one loss. Does not know: how the old log-probs were made.
Guarantees: those of `ppo_clip_loss`; the bounds always hold 1 between them.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from soliton.losses.band import MAX_LOG_RATIO
from soliton.losses.ppo import surrogate_loss
from soliton.losses.reduction import at_least_float32
from soliton.losses.result import LossResult
from soliton.losses.surrogate import checked_inputs, surrogate_within


def probability_bounds(proximal_logprobs: Tensor, *, clip_low: float, clip_high: float) -> tuple[Tensor, Tensor]:
    """Bound the ratio pi / q of a token of old probability q so that -clip_low <= pi - q <= clip_high.

        low = max(0, 1 - clip_low / q),   high = 1 + clip_high / q          (BPCO, https://arxiv.org/abs/2608.23566)

    A token with q <= clip_low has no lower bound, one with q >= 1 - clip_high no upper one that it could reach.
    Example: q = 0.5 with 0.2 and 0.2 gives 0.6 and 1.4.

    Args:
        proximal_logprobs: floating [T], <= 0; detached here.
        clip_low: >= 0; its unit is a probability.
        clip_high: likewise.

    Returns:
        Two tensors [T], at least float32. The upper one is finite: at most e**20, beyond which no ratio is looked at.
    """
    probability = at_least_float32(proximal_logprobs.detach()).exp()
    inverse = 1.0 / probability.clamp(min=torch.finfo(probability.dtype).tiny)
    low = (1.0 - clip_low * inverse).clamp(min=0.0)
    return low, (1.0 + clip_high * inverse).clamp(max=math.exp(MAX_LOG_RATIO))


def probability_clip_loss(
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
    """Clip the surrogate of PPO at the bounds of `probability_bounds`.

        loss = - sum_t min(r_t A_t, clip(r_t, low(q_t), high(q_t)) A_t) / num_action_tokens

    Special cases: policy = old has the gradient of plain advantage actor-critic; q = 1 is `ppo_clip_loss`.
    Arguments, returns and errors as for `ppo_clip_loss`; both clips are probabilities, in [0, 1].
    """
    if not (0 <= clip_low <= 1 and 0 <= clip_high <= 1):
        raise ValueError(f"clip_low and clip_high are probabilities, in [0, 1], got {clip_low} and {clip_high}")
    inputs = checked_inputs(policy_logprobs, advantages, action_mask, trusted, proximal_logprobs=proximal_logprobs)
    bounds = partial(probability_bounds, clip_low=clip_low, clip_high=clip_high)
    return surrogate_loss(inputs, surrogate_within(inputs, proximal_logprobs, bounds), num_action_tokens)
