"""SAO with GAE that steps through observations; for study only, it is the fault that skipping avoids (paper §3.2).

    delta_t = r_t + gamma V_{t+1} - V_t over EVERY token, from the first action to the last

Against `sao`: each observation token costs a factor gamma * lambda of credit, and V inside observations, which nothing
trains, reaches the actions before them. lambda still counts action tokens; the critic's targets stay those of `sao`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from soliton.algorithms.critic import policy_advantages_through_observations
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.sao import sao
from soliton.algorithms.traits import completed
from soliton.learner.method import Method


def sao_no_skip(options: MethodOptions) -> Method:
    """Build the preset `sao-no-skip`."""
    options = completed("sao-no-skip", options)
    return replace(
        sao(options),
        name="sao-no-skip",
        advantages=partial(policy_advantages_through_observations, options=options),
        extra_inputs=frozenset({"observation_values"}),
    )
