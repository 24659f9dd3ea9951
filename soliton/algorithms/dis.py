"""The DIS actor loss of paper §3.1, as methods use it."""

from __future__ import annotations

from soliton.algorithms.options import MethodOptions
from soliton.learner.method import ActorLossInputs
from soliton.losses import dis_loss
from soliton.losses.result import LossResult


def dis_actor_loss(inputs: ActorLossInputs, options: MethodOptions) -> LossResult:
    """Ratio against the RECORDED log-probs: there is no other policy to pass in (fault C8)."""
    return dis_loss(
        inputs.policy_logprobs,
        inputs.rollout_logprobs,
        inputs.advantages,
        inputs.action_mask,
        eps_low=options.eps_low,
        eps_high=options.eps_high,
        num_action_tokens=inputs.num_action_tokens,
        trusted=inputs.trusted,
    )
