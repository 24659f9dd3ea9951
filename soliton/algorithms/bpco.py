"""BPCO: a bounded value head, and a clip on how far a token's probability moved (https://arxiv.org/abs/2608.23566).

    V = (2 B / pi) arctan(pi z / (2 B)), B = 1;   lambda = 1 - 1/(0.4 l)
    loss = - mean min(r A, clip(r, 1 - 0.2 / mu, 1 + 0.2 / mu) A),   r = pi_theta / mu,   mu of the policy that sampled

Against `sao`: values cannot leave (-1, 1), so rewards must lie there (method.value_bound widens it); the clip bounds
|pi - mu| by 0.2 on one side by the sign of A, where DIS bounds the ratio; credit reaches less far; one critic update,
the whole critic trains. What is not named here is as in `vapo`; the form of the head is ours.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from soliton.algorithms.behaviour_clip import behaviour_clip_loss
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.sao import sao
from soliton.algorithms.traits import completed, critic_use
from soliton.learner.method import Method


def bpco(options: MethodOptions) -> Method:
    """Build the preset `bpco`."""
    options = completed("bpco", options)
    return replace(
        sao(options),
        name="bpco",
        critic=critic_use("bpco", options),
        actor_loss=partial(behaviour_clip_loss, options=options, clip="probability"),
    )
