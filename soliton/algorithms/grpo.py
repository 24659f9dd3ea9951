"""GRPO as the paper's baseline runs it (paper §4).

Against `sao`: groups of 8 rollouts per prompt, advantage = group-normalised reward, no critic, PPO clip against the
latest policy instead of DIS against the recorded one. A group is ready when its slowest member is.
"""

from __future__ import annotations

from functools import partial

from soliton.algorithms.group import group_normalised_advantages
from soliton.algorithms.latest_policy_clip import latest_policy_clip_loss
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.traits import TRAITS, completed
from soliton.learner.method import Method


def grpo(options: MethodOptions) -> Method:
    """Build the preset `grpo`."""
    options = completed("grpo", options)
    return Method(
        name="grpo",
        group_size=options.group_size or TRAITS["grpo"].group_size,
        critic=None,
        advantages=group_normalised_advantages,
        returns=None,
        actor_loss=partial(latest_policy_clip_loss, options=options),
        band=(1 - options.eps_low, 1 + options.eps_high),
    )
