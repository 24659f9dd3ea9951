"""What differs between SAO and every other method: a record of named choices, composed in `soliton.algorithms`.

The learner runs the same steps for every method and asks this record at the points where methods differ. A method is
never a flag inside a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from torch import Tensor

from soliton.learner.critic_use import CriticUse
from soliton.learner.truncation import TERMINAL, Truncation
from soliton.losses import value_loss
from soliton.losses.result import LossResult
from soliton.types import Trajectory

__all__ = [
    "ActorLossInputs",
    "ActorTerm",
    "CriticUse",
    "ExtraInput",
    "Method",
    "PackedBatch",
    "Tracker",
    "ValueLossInputs",
    "all_action_tokens",
    "as_they_are",
    "squared_errors",
]

ExtraInput = Literal["log_ratios", "observation_values"]
"""What a method needs in its `PackedBatch` and the learner computes only if asked: it costs a forward pass of the
actor, or reads the critic between actions, too."""
TermInput = Literal["entropies", "reference_logprobs"]
"""What a term of the actor loss needs and the learner computes only if asked: entropies with a gradient, or the
log-probs of the reference policy, a frozen copy of what the run started from."""


@dataclass(frozen=True)
class PackedBatch:
    """The whole optimiser batch as packed 1-D tensors over T tokens of S trajectories, in one order for all fields.

    Attributes:
        rewards: float32 [T].
        action_mask: bool [T].
        segment_ids: int64 [T], trajectory of each token, non-decreasing from 0.
        groups: int64 [S], group (draw) of each trajectory.
        values: float32 [T] or None without a critic; V of the prefix before the token, read on action tokens only.
            With the extra input "observation_values" also those of the observations up to the last action.
        bootstrap_values: float32 [S] or None; V after the last token, 0 where terminated.
        log_ratios: float32 [T] or None, 0 off the mask; log policy before the step minus log rollout.
        baselines: float32 [S] or None; of the method's tracker, from before this batch.
    """

    rewards: Tensor
    action_mask: Tensor
    segment_ids: Tensor
    groups: Tensor
    values: Tensor | None = None
    bootstrap_values: Tensor | None = None
    log_ratios: Tensor | None = None
    baselines: Tensor | None = None


@dataclass(frozen=True)
class ActorLossInputs:
    """What an actor loss may read for one micro-batch; packed 1-D tensors over its tokens.

    Attributes:
        policy_logprobs: with gradient, of the policy being trained.
        rollout_logprobs: recorded at sampling; NaN off the mask.
        advantages: float32, 0 off the mask.
        action_mask: bool; the fact.
        trusted: bool; False where the token is older than the staleness bound ("mask_tokens"). Such tokens carry no
            gradient and stay in the denominator.
        num_action_tokens: action tokens of the whole optimiser batch, all micro-batches and ranks.
        segment_ids: int64, trajectory of each token; a micro-batch holds whole trajectories.
        num_trajectories: those of the whole optimiser batch.
        positive: bool, whether the token's trajectory earned more than 0 in total; None if nothing is known of it.
        num_positive_tokens: action tokens of such trajectories in the whole optimiser batch.
        entropies: float32, nats, with gradient; None where no term asks.
        reference_logprobs: float32, of the reference policy; None where no term asks.
    """

    policy_logprobs: Tensor
    rollout_logprobs: Tensor
    advantages: Tensor
    action_mask: Tensor
    trusted: Tensor
    num_action_tokens: int
    segment_ids: Tensor
    num_trajectories: int
    positive: Tensor | None = None
    num_positive_tokens: int = 0
    entropies: Tensor | None = None
    reference_logprobs: Tensor | None = None


@dataclass(frozen=True)
class ActorTerm:
    """A term that a method adds to its actor loss.

    Attributes:
        metric: name under which its value, without its weight, is reported; None where another metric says it.
        weight: > 0.
        loss: one micro-batch -> loss, already divided by the count of the whole batch.
        needs: what it reads beyond the usual.
    """

    metric: str | None
    weight: float
    loss: Callable[[ActorLossInputs], LossResult]
    needs: frozenset[TermInput] = frozenset()


@dataclass(frozen=True)
class ValueLossInputs:
    """What a critic's loss may read for one micro-batch; packed 1-D tensors over its action tokens.

    Attributes:
        outputs: with gradient, what the value head maps to values.
        values: with gradient, V of the prefix before each token.
        returns: float32, the targets.
        pre_fit_values: float32, V from before the first fit on this batch.
        mask: bool; the tokens that the loss is taken on.
        num_tokens: those of the whole optimiser batch.
    """

    outputs: Tensor
    values: Tensor
    returns: Tensor
    pre_fit_values: Tensor
    mask: Tensor
    num_tokens: int


class Tracker(Protocol):
    """Baselines learned from rewards, step by step: state of the learner, so part of its checkpoint."""

    def before(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """Earlier trajectories, at most one per prompt, whose drift under the policy of now `observe` wants."""
        ...

    def baselines(self, trajectories: Sequence[Trajectory]) -> list[float]:
        """Expected reward of each, from what was observed before."""
        ...

    def observe(self, trajectories: Sequence[Trajectory], drifts: Mapping[str, float]) -> None:
        """Take in a batch; the order of its trajectories does not matter.

        Args:
            trajectories: the batch.
            drifts: by prompt id, mean |log policy - log rollout| over the action tokens of what `before` returned.
        """
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors by name, and JSON-able data."""
        ...

    def load_state(self, tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        ...


def all_action_tokens(action_mask: Tensor, segment_ids: Tensor) -> Tensor:
    """Every action token."""
    del segment_ids
    return action_mask


def squared_errors(inputs: ValueLossInputs) -> LossResult:
    """Squared error to the return."""
    return value_loss(inputs.values, inputs.returns, inputs.mask, num_action_tokens=inputs.num_tokens)


def as_they_are(advantages: Tensor, action_mask: Tensor, segment_ids: Tensor) -> Tensor:
    """No normalisation."""
    del action_mask, segment_ids
    return advantages


@dataclass(frozen=True)
class Method:
    """One algorithm.

    Attributes:
        name: preset name.
        group_size: rollouts per prompt.
        critic: None for critic-free methods.
        advantages: whole batch -> float32 [T], 0 off the action mask.
        returns: whole batch -> critic targets, float32 [T]; None without a critic.
        actor_loss: one micro-batch -> loss and summed metrics.
        band: (low, high) bounds of the trust band used for the WOULD-BE trust-mask share that is logged for every
            method, whether or not its loss masks.
        value_tokens: (action mask, segment ids) -> bool [T]: the action tokens that the critic's loss is taken on.
        extra_inputs: what `advantages` and `returns` need beyond the usual.
        tracker: makes a fresh tracker of baselines; None for methods without one.
        value_loss: one micro-batch -> the critic's loss; used only with a critic.
        normalise: (advantages, action mask, segment ids) of the whole batch -> advantages of the same kind.
        truncation: what becomes of trajectories that a limit cut.
        actor_terms: what is added to `actor_loss`.
    """

    name: str
    group_size: int
    critic: CriticUse | None
    advantages: Callable[[PackedBatch], Tensor]
    returns: Callable[[PackedBatch], Tensor] | None
    actor_loss: Callable[[ActorLossInputs], LossResult]
    band: tuple[float, float]
    value_tokens: Callable[[Tensor, Tensor], Tensor] = all_action_tokens
    extra_inputs: frozenset[ExtraInput] = frozenset()
    tracker: Callable[[], Tracker] | None = None
    value_loss: Callable[[ValueLossInputs], LossResult] = squared_errors
    normalise: Callable[[Tensor, Tensor, Tensor], Tensor] = as_they_are
    truncation: Truncation = TERMINAL
    actor_terms: tuple[ActorTerm, ...] = ()

    def asks_for(self, what: TermInput) -> bool:
        """Whether a term of the actor loss reads it."""
        return any(what in term.needs for term in self.actor_terms)
