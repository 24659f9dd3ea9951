"""What differs between SAO and every other method: a record of named choices, composed in `soliton.algorithms`.

The learner runs the same steps for every method and asks this record at the points where methods differ. A method is
never a flag inside a branch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from soliton.losses.result import LossResult


@dataclass(frozen=True)
class PackedBatch:
    """The whole optimiser batch as packed 1-D tensors over T tokens of S trajectories, in one order for all fields.

    Attributes:
        rewards: float32 [T].
        action_mask: bool [T].
        segment_ids: int64 [T], trajectory of each token, non-decreasing from 0.
        groups: int64 [S], group (draw) of each trajectory.
        values: float32 [T] or None without a critic; V of the prefix before the token, read on action tokens only.
        bootstrap_values: float32 [S] or None; V after the last token, 0 where terminated.
    """

    rewards: Tensor
    action_mask: Tensor
    segment_ids: Tensor
    groups: Tensor
    values: Tensor | None = None
    bootstrap_values: Tensor | None = None


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
    """

    policy_logprobs: Tensor
    rollout_logprobs: Tensor
    advantages: Tensor
    action_mask: Tensor
    trusted: Tensor
    num_action_tokens: int


@dataclass(frozen=True)
class CriticUse:
    """How a method uses a critic.

    Attributes:
        updates: K, critic updates per actor update, each one optimiser step over the whole batch.
        trainable: allow-list of what trains during RL ("mlp" is the paper's frozen attention).
        train_router: also train the routers of mixture-of-experts layers.
        advantage_values: "pre_fit" uses values from before the K updates, "post_fit" from after them.
        pretrained: the critic starts from value pretraining.
    """

    updates: int
    trainable: Literal["mlp", "mlp_norms", "all"]
    train_router: bool = False
    advantage_values: Literal["pre_fit", "post_fit"] = "pre_fit"
    pretrained: bool = True


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
    """

    name: str
    group_size: int
    critic: CriticUse | None
    advantages: Callable[[PackedBatch], Tensor]
    returns: Callable[[PackedBatch], Tensor] | None
    actor_loss: Callable[[ActorLossInputs], LossResult]
    band: tuple[float, float]
