"""Step-level advantages and targets, shared by the two step variants (paper appendix A.1)."""

from __future__ import annotations

from torch import Tensor

from soliton.advantages import turn_counts, turn_gae
from soliton.advantages.turns import TurnValue
from soliton.algorithms.critic import lambda_of
from soliton.algorithms.options import MethodOptions
from soliton.learner.method import PackedBatch


def turn_advantages(batch: PackedBatch, options: MethodOptions, turn_value: TurnValue) -> Tensor:
    """GAE over turns at the policy's lambda, which counts turns; one advantage for all tokens of a turn."""
    counts = turn_counts(batch.action_mask, batch.segment_ids, len(batch.groups))
    return _turn_gae(batch, options.gamma, lambda_of(counts, options), turn_value)[0]


def turn_returns(batch: PackedBatch, options: MethodOptions, turn_value: TurnValue) -> Tensor:
    """Return of the turn at the critic's lambda, for all tokens of a turn."""
    return _turn_gae(batch, options.gamma, options.critic_lambda, turn_value)[1]


def _turn_gae(batch: PackedBatch, gamma: float, lam: float | Tensor, turn_value: TurnValue) -> tuple[Tensor, Tensor]:
    assert batch.values is not None, "a method with a critic is given values"
    return turn_gae(
        batch.values,
        batch.rewards,
        batch.action_mask,
        batch.segment_ids,
        gamma=gamma,
        lam=lam,
        turn_value=turn_value,
        bootstrap_values=batch.bootstrap_values,
    )
