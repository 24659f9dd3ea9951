"""The clip of DCPO, whose bounds depend on how probable the token was.

Owns: the bounds and one loss. Does not know: how the old log-probs were made.
Guarantees: those of `ppo_clip_loss`; the bounds always hold 1 between them.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from soliton.losses.ppo import surrogate_loss
from soliton.losses.reduction import at_least_float32
from soliton.losses.result import LossResult
from soliton.losses.surrogate import checked_inputs, surrogate_within

MAX_RATIO = 10.0
"""Upper bound for the rarest tokens, where the formula has none (the paper's r_max)."""


def dcpo_bounds(proximal_logprobs: Tensor, *, clip_low: float, clip_high: float) -> tuple[Tensor, Tensor]:
    """Bound the ratio r of a token of old probability q so that |r - 1| * r * q stays below a constant.

        low = 1/2 + 1/2 sqrt(max(0, 1 - 4 clip_low / q)),   high = min(10, 1/2 + 1/2 sqrt(1 + 4 clip_high / q))
        (DCPO, https://arxiv.org/abs/2509.02333)

    The rarer the token, the further it may move; from q <= 4 clip_low on, down to half its probability.
    Example: q = 1 with clip_low 0.16 and clip_high 0.2 gives 0.8 and 1.17.

    Args:
        proximal_logprobs: floating [T], <= 0; detached here.
        clip_low: >= 0; its unit is a probability.
        clip_high: likewise.

    Returns:
        Two tensors [T], at least float32. A log-prob of -inf gives 0.5 and 10.
    """
    probability = at_least_float32(proximal_logprobs.detach()).exp()
    inverse = 1.0 / probability.clamp(min=torch.finfo(probability.dtype).tiny)
    low = 0.5 + 0.5 * (1.0 - 4.0 * clip_low * inverse).clamp(min=0.0).sqrt()
    high = 0.5 + 0.5 * (1.0 + 4.0 * clip_high * inverse).sqrt()
    return low, high.clamp(max=MAX_RATIO)


def dcpo_clip_loss(
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
    """Clip the surrogate of PPO at the bounds of `dcpo_bounds`.

        loss = - sum_t min(r_t A_t, clip(r_t, low(q_t), high(q_t)) A_t) / num_action_tokens

    Special case: policy = old has the gradient of plain advantage actor-critic.
    Arguments, returns and errors as for `ppo_clip_loss`; both clips are finite and >= 0.
    """
    if not (0 <= clip_low < math.inf and 0 <= clip_high < math.inf):
        raise ValueError(f"clip_low and clip_high must be finite and >= 0, got {clip_low} and {clip_high}")
    inputs = checked_inputs(policy_logprobs, advantages, action_mask, trusted, proximal_logprobs=proximal_logprobs)
    bounds = partial(dcpo_bounds, clip_low=clip_low, clip_high=clip_high)
    return surrogate_loss(inputs, surrogate_within(inputs, proximal_logprobs, bounds), num_action_tokens)
