"""PPO in its textbook form (Schulman et al., https://arxiv.org/abs/1707.06347).

    r = pi_theta / pi_rollout,   loss = - mean min(r A, clip(r, 1 - 0.2, 1 + 0.2) A),   A = GAE(0.95)

Against `sao`: the clip, whose side depends on the sign of A, instead of DIS; a fixed lambda; one critic update, the
whole critic trains, no value pretraining. pi_old is the policy that sampled, by its recorded log-probs. There is one
update per batch and no advantage normalisation; GAE skips observations as in `sao`. The value loss is clipped against
the values from before the fit, which acts from the second critic update on (method.critic_updates).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from soliton.algorithms.behaviour_clip import behaviour_clip_loss
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.sao import sao
from soliton.algorithms.traits import completed, critic_use
from soliton.learner.method import Method


def ppo(options: MethodOptions) -> Method:
    """Build the preset `ppo`."""
    options = completed("ppo", options)
    return replace(
        sao(options),
        name="ppo",
        critic=critic_use("ppo", options),
        actor_loss=partial(behaviour_clip_loss, options=options),
    )
