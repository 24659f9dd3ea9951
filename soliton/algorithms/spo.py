"""SPO: a tracker of each prompt's success that forgets as the policy drifts (https://arxiv.org/abs/2509.13232).

    v = alpha / (alpha + beta),   rho = clip(2^(-D / 0.06), 0.875, 0.96)
    alpha <- rho alpha + R,   beta <- rho beta + 1 - R
    A = (R - v) normalised over the trajectories of the batch,   PPO clip (0.2, 0.28) against the policy that sampled

Against `sao`: no critic; a clip instead of DIS. D is the mean |log pi - log pi_rollout| of the policy of now on the
prompt's last trajectory: one more forward of the actor, on those. Prompts must come back (env.num_prompts), rewards lie
in [0, 1]. Left out: the paper's priority sampling of prompts, and its samples before training (the prior is stated).
"""

from __future__ import annotations

from functools import partial

from soliton.advantages.beta_tracker import BetaTracker
from soliton.algorithms.baselines import normalised_reward_minus_baseline
from soliton.algorithms.behaviour_clip import behaviour_clip_loss
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.trackers import SpoTracker
from soliton.algorithms.traits import completed
from soliton.learner.method import Method


def spo(options: MethodOptions) -> Method:
    """Build the preset `spo`."""
    options = completed("spo", options)
    return Method(
        name="spo",
        group_size=options.group_size or 1,
        critic=None,
        advantages=normalised_reward_minus_baseline,
        returns=None,
        actor_loss=partial(behaviour_clip_loss, options=options),
        band=(1 - options.eps_low, 1 + options.eps_high),
        tracker=partial(_tracker, options),
    )


def _tracker(options: MethodOptions) -> SpoTracker:
    assert options.baseline_prior is not None, "the preset has a default"
    return SpoTracker(BetaTracker(prior=options.baseline_prior))
