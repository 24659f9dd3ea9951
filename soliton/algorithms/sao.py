"""SAO, the paper's method (paper §3).

One rollout per prompt. Advantages: skip-observation GAE with the length-adaptive lambda over values from before the
critic's updates. Actor: REINFORCE weighted by the detached ratio inside the DIS band, against the log-probs recorded
at sampling. Critic: starts from value pretraining, K = 2 updates per actor update, attention frozen.
"""

from __future__ import annotations

from functools import partial

from soliton.algorithms.critic import critic_returns, policy_advantages
from soliton.algorithms.dis import dis_actor_loss
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.traits import completed, critic_use
from soliton.learner.method import Method


def sao(options: MethodOptions) -> Method:
    """Build the preset `sao`."""
    options = completed("sao", options)
    return Method(
        name="sao",
        group_size=options.group_size or 1,
        critic=critic_use("sao", options),
        advantages=partial(policy_advantages, options=options),
        returns=partial(critic_returns, options=options),
        actor_loss=partial(dis_actor_loss, options=options),
        band=(1 - options.eps_low, 1 + options.eps_high),
    )
