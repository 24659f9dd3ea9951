"""PACT: the critic predicts success as a probability, from targets corrected for the data's age.

    V = sigmoid(z),   critic loss = cross-entropy of V with v,   v of V-trace at lambda 1 with weights min(1, r)
    A = GAE at lambda 1 = return - V,   actor loss of DIS,   r = pi / pi_rollout
    (https://arxiv.org/abs/2609.26355)

Against `sao`: the cross-entropy keeps its gradient where a confident value is wrong; targets lean towards V where the
policy has left the data (they stay in [0, 1] with rewards there, which the method wants); no lambda; one critic update,
the whole critic trains, no value pretraining. The paper updates the actor before the critic: advantages are of values
from before the fit in either order, so here the critic's update comes first, as in all methods. The actor loss is our
choice.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from soliton.algorithms.options import MethodOptions
from soliton.algorithms.sao import sao
from soliton.algorithms.traits import completed, critic_use
from soliton.algorithms.vtrace import vtrace_targets
from soliton.learner.method import Method


def pact(options: MethodOptions) -> Method:
    """Build the preset `pact`."""
    options = completed("pact", options)
    return replace(
        sao(options),
        name="pact",
        critic=critic_use("pact", options),
        returns=partial(vtrace_targets, options=options),
        extra_inputs=frozenset({"log_ratios"}),
    )
