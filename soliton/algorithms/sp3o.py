"""SP3O: PPO whose critic learns on three distant states of each trajectory (https://arxiv.org/abs/2609.18708).

    value loss = mean of (V - R)^2 over action tokens floor((j + 1/2) l / 3), j = 0, 1, 2, of each trajectory

Against `ppo`: neighbouring tokens have almost the same prefix and the same return, so that all of them together are one
sample counted often; trajectories count the same whatever their length. Which three is our choice: the middles of
thirds. Advantages use the values of all tokens. What is not named here is as in `ppo`, without
its clip of values.
"""

from __future__ import annotations

from dataclasses import replace

from soliton.algorithms.options import MethodOptions
from soliton.algorithms.ppo import ppo
from soliton.algorithms.traits import completed, critic_use
from soliton.learner.method import Method


def sp3o(options: MethodOptions) -> Method:
    """Build the preset `sp3o`."""
    options = completed("sp3o", options)
    return replace(ppo(options), name="sp3o", critic=critic_use("sp3o", options))
