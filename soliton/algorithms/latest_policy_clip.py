"""The PPO clip that "keeps the latest old policy" (paper §4).

The old policy is the learner's own at the start of the batch. With one update per batch that is the policy itself, so
the ratio is 1 and the clip never sees how old the data really are. That is the baseline's weakness, kept on purpose.
"""

from __future__ import annotations

from soliton.algorithms.options import MethodOptions
from soliton.learner.method import ActorLossInputs
from soliton.losses import ppo_clip_loss
from soliton.losses.result import LossResult


def latest_policy_clip_loss(inputs: ActorLossInputs, options: MethodOptions) -> LossResult:
    """PPO clip against `policy_logprobs.detach()`."""
    assert options.clip_low is not None and options.clip_high is not None, "the preset has defaults"  # noqa: PT018
    return ppo_clip_loss(
        inputs.policy_logprobs,
        inputs.policy_logprobs.detach(),
        inputs.advantages,
        inputs.action_mask,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
        num_action_tokens=inputs.num_action_tokens,
        trusted=inputs.trusted,
    )
