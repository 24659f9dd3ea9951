"""Decoupled PPO, as in AReaL (https://arxiv.org/abs/2505.24298).

    w = sg[pi_proximal / pi_rollout], dropped above 1 + eps_high,   r = pi_theta / pi_proximal
    loss = - mean w min(r A, clip(r, 1 - 0.2, 1 + 0.2) A)

Against `sao`: groups of 8 with group-normalised rewards and no critic (a choice); the weight for the age of the data is
apart from the clip and has no lower bound. pi_proximal is the learner's policy at the start of the batch: with one
update per batch r = 1, and what is left is the weighted policy gradient. The paper's objective has no upper bound
either: for that, eps_high = 1e30.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from soliton.algorithms.grpo import grpo
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.traits import completed
from soliton.learner.method import ActorLossInputs, Method
from soliton.losses import two_ratio_clip_loss
from soliton.losses.result import LossResult


def decoupled_ppo_loss(inputs: ActorLossInputs, options: MethodOptions) -> LossResult:
    """The clip around the latest policy, weighted for the policy that sampled; weights above the band are dropped."""
    assert options.clip_low is not None and options.clip_high is not None, "the preset has defaults"  # noqa: PT018
    return two_ratio_clip_loss(
        inputs.policy_logprobs,
        inputs.policy_logprobs.detach(),
        inputs.rollout_logprobs,
        inputs.advantages,
        inputs.action_mask,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
        weight_low=0.0,
        weight_high=min(1 + options.eps_high, 1e30),
        num_action_tokens=inputs.num_action_tokens,
        trusted=inputs.trusted,
    )


def decoupled_ppo(options: MethodOptions) -> Method:
    """Build the preset `decoupled-ppo`."""
    options = completed("decoupled-ppo", options)
    return replace(grpo(options), name="decoupled-ppo", actor_loss=partial(decoupled_ppo_loss, options=options))
