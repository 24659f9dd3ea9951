"""How a method uses a critic, as a record. No torch here: configurations are checked with it before anything loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LossOfValues = Literal["mse", "clipped", "huber", "bce"]
HeadOfValues = Literal["linear", "sigmoid", "arctan"]


@dataclass(frozen=True)
class CriticUse:
    """How a method uses a critic.

    Attributes:
        updates: K, critic updates per actor update, each one optimiser step over the whole batch.
        trainable: allow-list of what trains during RL ("mlp" is the paper's frozen attention).
        train_router: also train the routers of mixture-of-experts layers.
        advantage_values: "pre_fit" uses values from before the K updates, "post_fit" from after them.
        pretrained: the critic starts from value pretraining.
        loss: what its values are compared with their targets by (`soliton.losses.value`).
        head: from its output to a value (`soliton.models.value_head`).
        bound: of the head "arctan"; values lie in (-bound, bound).
        states: action tokens of each trajectory that the loss is taken on; None: all of them.
    """

    updates: int
    trainable: Literal["mlp", "mlp_norms", "all"]
    train_router: bool = False
    advantage_values: Literal["pre_fit", "post_fit"] = "pre_fit"
    pretrained: bool = True
    loss: LossOfValues = "mse"
    head: HeadOfValues = "linear"
    bound: float = 1.0
    states: int | None = None
