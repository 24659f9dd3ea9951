"""RLOO: REINFORCE with the leave-one-out mean of its group as baseline (https://arxiv.org/abs/2402.14740).

    A_i = R_i - mean of the other rewards of its prompt,   loss = - mean A log pi_theta

Against `sao`: groups of 8 rollouts per prompt, no critic, no ratio: what the age of the data does to the gradient is
not corrected. Against `grpo`: no division by the deviation, no clip.
"""

from __future__ import annotations

from dataclasses import replace

from soliton.algorithms.group import leave_one_out
from soliton.algorithms.grpo import grpo
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.policy_gradient import policy_gradient_loss
from soliton.learner.method import Method


def rloo(options: MethodOptions) -> Method:
    """Build the preset `rloo`."""
    return replace(grpo(options), name="rloo", advantages=leave_one_out, actor_loss=policy_gradient_loss)
