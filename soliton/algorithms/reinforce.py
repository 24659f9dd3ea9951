"""REINFORCE in its textbook form, without a baseline (Williams 1992, https://doi.org/10.1007/BF00992696).

    A_k = sum of gamma^(j-k) r_j over the action tokens j >= k,   loss = - mean A log pi_theta

Against `sao`: no critic and no ratio. The return is carried across observations (it is GAE at V = 0 and lambda = 1),
and a trajectory without reward teaches nothing.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from soliton.advantages import skip_observation_gae
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.policy_gradient import policy_gradient_loss
from soliton.learner.method import Method, PackedBatch


def rewards_to_come(batch: PackedBatch, options: MethodOptions) -> Tensor:
    """Discounted sum of the rewards from each action token on."""
    return skip_observation_gae(
        torch.zeros_like(batch.rewards),
        batch.rewards,
        batch.action_mask,
        gamma=options.gamma,
        lam=1.0,
        segment_ids=batch.segment_ids,
    )


def reinforce(options: MethodOptions) -> Method:
    """Build the preset `reinforce`."""
    return Method(
        name="reinforce",
        group_size=options.group_size or 1,
        critic=None,
        advantages=partial(rewards_to_come, options=options),
        returns=None,
        actor_loss=policy_gradient_loss,
        band=(1 - options.eps_low, 1 + options.eps_high),
    )
