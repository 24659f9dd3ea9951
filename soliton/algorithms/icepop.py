"""IcePop: a two-sided mask on the gap between trainer and engine (https://arxiv.org/abs/2510.18855).

    w = sg[pi_proximal / pi_rollout], dropped outside [1 - eps_low, 1 + eps_high],   r = pi_theta / pi_proximal
    loss = - mean w min(r A, clip(r, 1 - 0.2, 1 + 0.2) A)

Against `sao`: groups of 8 with group-normalised rewards and no critic, and closed bounds; the paper's band is
[0.5, 5]. With one update per batch r = 1, so its gradient is that of `grpo-dis`. In asynchronous runs w holds the age
of the data as well as the gap between engines.
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


def icepop_loss(inputs: ActorLossInputs, options: MethodOptions) -> LossResult:
    """The clip around the latest policy, weighted inside the band and dropped outside."""
    assert options.clip_low is not None and options.clip_high is not None, "the preset has defaults"  # noqa: PT018
    return two_ratio_clip_loss(
        inputs.policy_logprobs,
        inputs.policy_logprobs.detach(),
        inputs.rollout_logprobs,
        inputs.advantages,
        inputs.action_mask,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
        weight_low=max(0.0, 1 - options.eps_low),
        weight_high=min(1 + options.eps_high, 1e30),
        num_action_tokens=inputs.num_action_tokens,
        trusted=inputs.trusted,
    )


def icepop(options: MethodOptions) -> Method:
    """Build the preset `icepop`."""
    options = completed("icepop", options)
    return replace(grpo(options), name="icepop", actor_loss=partial(icepop_loss, options=options))
