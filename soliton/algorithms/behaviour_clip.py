"""The PPO clip against the policy that sampled, by its recorded log-probs."""

from __future__ import annotations

from soliton.algorithms.options import MethodOptions
from soliton.learner.method import ActorLossInputs
from soliton.losses import ppo_clip_loss
from soliton.losses.result import LossResult


def behaviour_clip_loss(inputs: ActorLossInputs, options: MethodOptions) -> LossResult:
    """PPO clip against the recorded log-probs, so that the clip sees how old the data are."""
    assert options.clip_low is not None and options.clip_high is not None, "the preset has defaults"  # noqa: PT018
    return ppo_clip_loss(
        inputs.policy_logprobs,
        inputs.rollout_logprobs,
        inputs.advantages,
        inputs.action_mask,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
        num_action_tokens=inputs.num_action_tokens,
        trusted=inputs.trusted,
    )
