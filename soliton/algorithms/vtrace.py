"""V-trace: an actor-critic whose value targets are corrected for the age of the data (https://arxiv.org/abs/1802.01561).

    w = pi / pi_rollout,   rho = min(1, w),   c = lambda min(1, w)
    v_k = V_k + rho_k (r_k + gamma V_{k+1} - V_k) + gamma c_k (v_{k+1} - V_{k+1})
    A_k = rho_k (r_k + gamma v_{k+1} - V_k)
    loss = - mean A log pi_theta,   the critic learns v

Against `sao`: weights are truncated at 1 and never dropped, and correct the targets, too (`sao` learns plain returns of
old policies); one critic update, the whole critic trains, no value pretraining. Costs one more forward of the actor.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from soliton.advantages import vtrace as vtrace_estimates
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.policy_gradient import policy_gradient_loss
from soliton.algorithms.traits import critic_use
from soliton.learner.method import Method, PackedBatch


def vtrace_advantages(batch: PackedBatch, options: MethodOptions) -> Tensor:
    """Rho (r + gamma v' - V), with v the V-trace target at the critic's lambda."""
    return _estimates(batch, options)[1]


def vtrace_targets(batch: PackedBatch, options: MethodOptions) -> Tensor:
    """V-trace targets at the critic's lambda."""
    return _estimates(batch, options)[0]


def _estimates(batch: PackedBatch, options: MethodOptions) -> tuple[Tensor, Tensor]:
    assert batch.values is not None and batch.log_ratios is not None, "the method asks for both"  # noqa: PT018
    return vtrace_estimates(
        batch.values,
        batch.rewards,
        batch.action_mask,
        batch.log_ratios,
        batch.segment_ids,
        gamma=options.gamma,
        lam=options.critic_lambda,
        bootstrap_values=batch.bootstrap_values,
    )


def vtrace(options: MethodOptions) -> Method:
    """Build the preset `vtrace`."""
    return Method(
        name="vtrace",
        group_size=options.group_size or 1,
        critic=critic_use("vtrace", options),
        advantages=partial(vtrace_advantages, options=options),
        returns=partial(vtrace_targets, options=options),
        actor_loss=policy_gradient_loss,
        band=(1 - options.eps_low, 1 + options.eps_high),
        extra_inputs=frozenset({"log_ratios"}),
    )
