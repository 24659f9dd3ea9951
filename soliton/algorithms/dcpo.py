"""DCPO's dynamic clip, whose bounds depend on the token's probability (https://arxiv.org/abs/2509.02333).

    q = pi_rollout,   low = 1/2 + 1/2 sqrt(max(0, 1 - 4 * 0.16 / q)),   high = min(10, 1/2 + 1/2 sqrt(1 + 4 * 0.2 / q))
    loss = - mean min(r A, clip(r, low, high) A),   r = pi_theta / pi_rollout

Against `sao`: groups of 8 with group-normalised rewards and no critic; the clip acts on one side by the sign of A and
widens for rare tokens. Left out: the paper's advantage standardisation over past steps, and its mean per response (the
reduction is the token mean of all methods here).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from soliton.algorithms.behaviour_clip import behaviour_clip_loss
from soliton.algorithms.grpo import grpo
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.traits import completed
from soliton.learner.method import Method


def dcpo(options: MethodOptions) -> Method:
    """Build the preset `dcpo`."""
    options = completed("dcpo", options)
    return replace(grpo(options), name="dcpo", actor_loss=partial(behaviour_clip_loss, options=options, clip="dcpo"))
