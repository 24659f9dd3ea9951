"""A clip against the policy that sampled, by its recorded log-probs."""

from __future__ import annotations

from typing import Literal

from soliton.algorithms.options import MethodOptions
from soliton.learner.method import ActorLossInputs
from soliton.losses import dcpo_clip_loss, ppo_clip_loss, probability_clip_loss
from soliton.losses.result import LossResult

Clip = Literal["ratio", "probability", "dcpo"]
"""What the bounds are of: the ratio, the change of the probability, or DCPO's, which depend on the probability."""
_LOSSES = {"ratio": ppo_clip_loss, "probability": probability_clip_loss, "dcpo": dcpo_clip_loss}


def behaviour_clip_loss(inputs: ActorLossInputs, options: MethodOptions, clip: Clip = "ratio") -> LossResult:
    """A clip against the recorded log-probs, so that it sees how old the data are."""
    assert options.clip_low is not None and options.clip_high is not None, "the preset has defaults"  # noqa: PT018
    return _LOSSES[clip](
        inputs.policy_logprobs,
        inputs.rollout_logprobs,
        inputs.advantages,
        inputs.action_mask,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
        num_action_tokens=inputs.num_action_tokens,
        trusted=inputs.trusted,
    )
