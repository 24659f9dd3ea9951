"""DCPO's dynamic clip, whose bounds depend on the token's probability (https://arxiv.org/abs/2509.02333).

    q = pi_rollout,   low = 1/2 + 1/2 sqrt(max(0, 1 - 4 * 0.16 / q)),   high = min(10, 1/2 + 1/2 sqrt(1 + 4 * 0.2 / q))
    loss = - mean min(r A, clip(r, low, high) A),   r = pi_theta / pi_rollout

Against `sao`: groups of 8 with group-normalised rewards and no critic; the clip acts on one side by the sign of A and
widens for rare tokens. Left out: the paper's advantage standardisation over past steps, and its mean per response (the
reduction is the token mean of all methods here).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from soliton.algorithms.grpo import grpo
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.traits import completed
from soliton.learner.method import ActorLossInputs, Method
from soliton.losses import dcpo_clip_loss
from soliton.losses.result import LossResult


def dynamic_clip_loss(inputs: ActorLossInputs, options: MethodOptions) -> LossResult:
    """The clip against the recorded log-probs, wider for rare tokens."""
    assert options.clip_low is not None and options.clip_high is not None, "the preset has defaults"  # noqa: PT018
    return dcpo_clip_loss(
        inputs.policy_logprobs,
        inputs.rollout_logprobs,
        inputs.advantages,
        inputs.action_mask,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
        num_action_tokens=inputs.num_action_tokens,
        trusted=inputs.trusted,
    )


def dcpo(options: MethodOptions) -> Method:
    """Build the preset `dcpo`."""
    options = completed("dcpo", options)
    return replace(grpo(options), name="dcpo", actor_loss=partial(dynamic_clip_loss, options=options))
