"""GSPO: the ratio of the whole sequence, clipped (https://arxiv.org/abs/2507.18071).

    s = exp(mean over action tokens of log pi_theta - log pi_rollout)
    loss = - mean over trajectories of min(s A, clip(s, 1 - 3e-4, 1 + 4e-4) A)

Against `sao`: groups of 8 with group-normalised rewards and no critic; one ratio per trajectory; the mean is over
trajectories, not tokens. pi_old is the policy that sampled, by its recorded log-probs. The paper's clip suits data of
one version or two: over older data nearly every trajectory is clipped (method.clip_low, method.clip_high).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from soliton.algorithms.grpo import grpo
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.traits import completed
from soliton.learner.method import ActorLossInputs, Method
from soliton.losses import gspo_loss
from soliton.losses.result import LossResult


def sequence_clip_loss(inputs: ActorLossInputs, options: MethodOptions) -> LossResult:
    """The clip on the geometric mean of the ratios of a trajectory."""
    assert options.clip_low is not None and options.clip_high is not None, "the preset has defaults"  # noqa: PT018
    return gspo_loss(
        inputs.policy_logprobs,
        inputs.rollout_logprobs,
        inputs.advantages,
        inputs.action_mask,
        inputs.segment_ids,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
        num_trajectories=inputs.num_trajectories,
        trusted=inputs.trusted,
    )


def gspo(options: MethodOptions) -> Method:
    """Build the preset `gspo`."""
    options = completed("gspo", options)
    return replace(grpo(options), name="gspo", actor_loss=partial(sequence_clip_loss, options=options))
