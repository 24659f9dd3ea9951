"""The critic's updates: each is one optimiser step over the whole batch; the first one's forward gives the values.

Owns the critic and its optimiser. What lies below the first trained projection is computed once per batch and reused by
the K fits (SPEED.md section 3). Guarantees: what is frozen is out of the optimiser and its hash never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from soliton.errors import RunError
from soliton.learner.config import LearnerConfig
from soliton.learner.method import CriticUse, PackedBatch
from soliton.learner.microbatches import MicroBatch
from soliton.learner.optimiser import Optimiser, warm_up
from soliton.learner.packing import Batch
from soliton.losses import value_loss
from soliton.models.critic import Critic
from soliton.models.trainable import freeze, resolve_trainable
from soliton.weights import weights_sha256

Targets = Callable[[MicroBatch, Tensor], Tensor]
"""Micro-batch and the values over its tokens -> critic targets over its tokens, float32."""


@dataclass(frozen=True)
class CriticPass:
    """What one fit gave.

    Attributes:
        lr: learning rate of the update.
        grad_norm: before the clip.
        loss: mean (V - R)^2 over the action tokens of the batch, of the values before the update.
        values: float32 [T] before the update, 0 off the mask; V of the prefix before each action token.
        targets: float32 [T], 0 off the mask.
    """

    lr: float
    grad_norm: float
    loss: float
    values: Tensor
    targets: Tensor


class CriticTrainer:
    """A critic, of which only an allow-list trains."""

    def __init__(
        self, critic: Critic, use: CriticUse, returns: Callable[[PackedBatch], Tensor], config: LearnerConfig
    ) -> None:
        self.critic = critic.eval()
        self._returns = returns
        self.trainable = resolve_trainable(critic, use.trainable, use.train_router)
        freeze(critic, self.trainable)
        self.optimiser = Optimiser(
            {name: parameter for name, parameter in critic.named_parameters() if parameter.requires_grad},
            lr=config.critic_lr,
            schedule=warm_up(config.critic_lr_warmup_updates),
            betas=config.betas,
            weight_decay=config.weight_decay,
            grad_clip=config.grad_clip,
        )
        self.frozen_sha256 = self._hash_frozen()

    def first_fit(self, batch: Batch) -> CriticPass:
        """Update once; targets come from the values of this very forward, trajectory by trajectory."""

        def targets(part: MicroBatch, values: Tensor) -> Tensor:
            return self._returns(batch.packed_part(part, values))

        return self._fit(batch, targets)

    def fit_again(self, batch: Batch, targets: Tensor) -> CriticPass:
        """Update once more, against the targets (float32 [T]) of the first fit."""
        return self._fit(batch, lambda part, _values: targets[part.tokens])

    def values(self, batch: Batch) -> Tensor:
        """V of the prefix before each action token, float32 [T], 0 off the mask; no gradient."""
        packed = torch.zeros_like(batch.rewards)
        with torch.no_grad():
            for part in batch.micro_batches:
                packed[part.action_index] = action_values(self.critic, part)
        batch.scene.require_finite("critic value", packed, batch.segment_ids)
        return packed

    def check_frozen(self) -> None:
        """Compare the hash of what is frozen with the one at the start (fault A14).

        Raises:
            RunError: a frozen parameter has moved.
        """
        now = self._hash_frozen()
        if now != self.frozen_sha256:
            raise RunError(
                f"frozen parameters of the critic have moved: sha256 {self.frozen_sha256[:12]} -> {now[:12]}. "
                f"Something outside the learner wrote to the critic; it must own its own copy"
            )

    def adopt_frozen(self) -> None:
        """Take what is frozen now as what must not move, after a checkpoint was loaded."""
        self.frozen_sha256 = self._hash_frozen()

    def _fit(self, batch: Batch, targets_of: Targets) -> CriticPass:
        values, targets = torch.zeros_like(batch.rewards), torch.zeros_like(batch.rewards)
        total = 0.0
        for part in batch.micro_batches:
            predicted = action_values(self.critic, part)
            batch.scene.require_finite("critic value", predicted, part.action_segments)
            values[part.action_index] = predicted.detach()
            targets[part.tokens] = targets_of(part, values[part.tokens])
            aim = targets[part.action_index]
            batch.scene.require_finite("critic target", aim, part.action_segments)
            everywhere = torch.ones_like(aim, dtype=torch.bool)
            loss = value_loss(predicted, aim, everywhere, num_action_tokens=batch.num_action_tokens).loss
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        lr = self.optimiser.lr
        return CriticPass(lr, self.optimiser.step(batch.scene), total, values, targets)

    def _hash_frozen(self) -> str:
        return weights_sha256(
            {name: p.detach() for name, p in self.critic.named_parameters() if name not in self.optimiser.parameters}
        )


def action_values(critic: Critic, part: MicroBatch) -> Tensor:
    """V of the prefix before each action token, float32 [n], with gradient."""
    return critic.values(part.input_ids).flatten().index_select(0, part.predicted_from)
