"""Single rollouts with a running mean of past rewards as baseline (paper §4.5).

    A = R - mean of the last 8 rewards of the prompt (scope = prompt), or of the last 128 of all (scope = global)

Against `sao`: no critic. Rewards are ordered by draw, a first visit uses a stated prior, and a batch is judged by what
was known before it. With scope = prompt the prompts must come back: set env.num_prompts.
"""

from __future__ import annotations

from functools import partial

from soliton.advantages.running_mean import RunningMean
from soliton.algorithms.baselines import reward_minus_baseline
from soliton.algorithms.dis import dis_actor_loss
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.trackers import RunningMeanTracker
from soliton.algorithms.traits import completed
from soliton.learner.method import Method

WINDOWS = {"prompt": 8, "global": 128}


def running_mean(options: MethodOptions) -> Method:
    """Build the preset `running-mean`."""
    options = completed("running-mean", options)
    return Method(
        name="running-mean",
        group_size=options.group_size or 1,
        critic=None,
        advantages=reward_minus_baseline,
        returns=None,
        actor_loss=partial(dis_actor_loss, options=options),
        band=(1 - options.eps_low, 1 + options.eps_high),
        tracker=partial(_tracker, options),
    )


def _tracker(options: MethodOptions) -> RunningMeanTracker:
    assert options.baseline_prior is not None, "the preset has a default"
    window = options.baseline_window or WINDOWS[options.baseline_scope]
    return RunningMeanTracker(RunningMean(window=window, scope=options.baseline_scope, prior=options.baseline_prior))
