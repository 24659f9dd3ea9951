"""VAPO as the paper's baseline runs it (paper §4).

Against `sao`: one critic update per actor update, nothing frozen, and the PPO clip against the latest policy instead
of DIS. Value pretraining and the length-adaptive lambda are the same. The positive-example loss is off (our choice).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from soliton.algorithms.latest_policy_clip import latest_policy_clip_loss
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.sao import sao
from soliton.algorithms.traits import completed, critic_use
from soliton.learner.method import Method


def vapo(options: MethodOptions) -> Method:
    """Build the preset `vapo`."""
    options = completed("vapo", options)
    return replace(
        sao(options),
        name="vapo",
        critic=critic_use("vapo", options),
        actor_loss=partial(latest_policy_clip_loss, options=options),
    )
