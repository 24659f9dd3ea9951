"""BPCO: a bounded value head, and a clip on how far a token's probability moved (https://arxiv.org/abs/2608.23566).

    V = (2 B / pi) arctan(pi z / (2 B)), B = 1;   lambda = 1 - 1/(0.4 l)
    loss = - mean min(r A, clip(r, 1 - 0.2 / mu, 1 + 0.2 / mu) A),   r = pi_theta / mu,   mu of the policy that sampled

Against `sao`: values cannot leave (-1, 1), so rewards must lie there (method.value_bound widens it); the clip bounds
|pi - mu| by 0.2 on one side by the sign of A, where DIS bounds the ratio; credit reaches less far; one critic update,
the whole critic trains. What PAPER section 6 does not say of the method is as in `vapo`; the form of the head is ours.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from soliton.algorithms.options import MethodOptions
from soliton.algorithms.sao import sao
from soliton.algorithms.traits import completed, critic_use
from soliton.learner.method import ActorLossInputs, Method
from soliton.losses import probability_clip_loss
from soliton.losses.result import LossResult


def bounded_probability_loss(inputs: ActorLossInputs, options: MethodOptions) -> LossResult:
    """The clip against the recorded log-probs, by the change of the probability."""
    assert options.clip_low is not None and options.clip_high is not None, "the preset has defaults"  # noqa: PT018
    return probability_clip_loss(
        inputs.policy_logprobs,
        inputs.rollout_logprobs,
        inputs.advantages,
        inputs.action_mask,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
        num_action_tokens=inputs.num_action_tokens,
        trusted=inputs.trusted,
    )


def bpco(options: MethodOptions) -> Method:
    """Build the preset `bpco`."""
    options = completed("bpco", options)
    return replace(
        sao(options),
        name="bpco",
        critic=critic_use("bpco", options),
        actor_loss=partial(bounded_probability_loss, options=options),
    )
