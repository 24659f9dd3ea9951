"""The plain policy gradient, for methods whose actor loss has no ratio."""

from __future__ import annotations

from soliton.learner.method import ActorLossInputs
from soliton.losses import reinforce_loss
from soliton.losses.result import LossResult


def policy_gradient_loss(inputs: ActorLossInputs) -> LossResult:
    """REINFORCE: minus advantage times log-prob."""
    return reinforce_loss(
        inputs.policy_logprobs,
        inputs.advantages,
        inputs.action_mask,
        num_action_tokens=inputs.num_action_tokens,
        trusted=inputs.trusted,
    )
