"""The critic's updates: each is one optimiser step over the whole batch; the first one's forward gives the values.

Owns the critic and its optimiser. What lies below the first trained projection is computed once per batch and reused by
the K fits. Guarantees: what is frozen is out of the optimiser and its hash never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from soliton.errors import RunError
from soliton.learner.config import LearnerConfig
from soliton.learner.method import Method, PackedBatch
from soliton.learner.microbatches import MicroBatch
from soliton.learner.optimiser import Optimiser, warm_up
from soliton.learner.packing import Batch
from soliton.losses import value_loss
from soliton.models import Critic, FrozenPrefix, freeze, frozen_sha256, outputs_before_tokens, resolve_trainable

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
        valued: bool [T], the action tokens that the loss was taken on.
    """

    lr: float
    grad_norm: float
    loss: float
    values: Tensor
    targets: Tensor
    valued: Tensor


class CriticTrainer:
    """A critic, of which only an allow-list trains.

    Attributes:
        model: the critic.
        trainable: names of the parameters that train.
        frozen_sha256: hash of all the others.
    """

    def __init__(self, critic: Critic, method: Method, config: LearnerConfig) -> None:
        use = method.critic
        assert use is not None
        assert method.returns is not None, "a method with a critic says what its targets are"
        self.model = critic.train(mode=False)
        self.returns: Callable[[PackedBatch], Tensor] = method.returns
        self.value_tokens = method.value_tokens
        self.values_observations = "observation_values" in method.extra_inputs
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
        self.adopt_frozen()

    def adopt_frozen(self) -> None:
        """Take what is frozen now as what must not move: at the start, and after a checkpoint was loaded."""
        self.frozen_sha256 = frozen_sha256(self.model, self.trainable)

    def check_frozen(self) -> None:
        """Compare the hash of what is frozen with the one at the start (fault A14).

        Raises:
            RunError: a frozen parameter has moved.
        """
        now = frozen_sha256(self.model, self.trainable)
        if now != self.frozen_sha256:
            raise RunError(
                f"frozen parameters of the critic have moved: sha256 {self.frozen_sha256[:12]} -> {now[:12]}. "
                f"Something outside the learner wrote to the critic; it must own its own copy"
            )


class BatchFits:
    """The critic's fits on ONE batch, and what they share: targets, and the outputs of the frozen prefix."""

    def __init__(self, trainer: CriticTrainer, batch: Batch, log_ratios: Tensor | None = None) -> None:
        self._trainer = trainer
        self._batch = batch
        self._log_ratios = log_ratios
        self._valued = trainer.value_tokens(batch.action_mask, batch.segment_ids)
        self._num_valued = int(self._valued.sum())
        self._prefix = FrozenPrefix(trainer.model)
        self._targets = torch.zeros_like(batch.rewards)

    def first(self) -> CriticPass:
        """Update once. The targets come from the values of this very forward, trajectory by trajectory.

        So a method's returns may depend on the values of the trajectory itself, and on no other's.
        """
        return self._fit(self._targets_from_values)

    def again(self) -> CriticPass:
        """Update once more, against the targets of the first fit."""
        return self._fit(lambda part, _values: self._targets[part.tokens])

    def values(self) -> Tensor:
        """V of the prefix before each action token, float32 [T], 0 where not asked for; no gradient."""
        packed = torch.zeros_like(self._batch.rewards)
        with torch.no_grad():
            for part in self._batch.micro_batches:
                self._action_values(part, packed)
        return packed

    def _targets_from_values(self, part: MicroBatch, values: Tensor) -> Tensor:
        targets = self._trainer.returns(self._batch.packed_part(part, values, self._log_ratios))
        self._targets[part.tokens] = targets
        return targets

    def _fit(self, targets_of: Targets) -> CriticPass:
        batch, optimiser = self._batch, self._trainer.optimiser
        values, total = torch.zeros_like(batch.rewards), 0.0
        for part in batch.micro_batches:
            predicted = self._action_values(part, values)
            targets = targets_of(part, values[part.tokens])[part.action_index - part.tokens.start]
            batch.scene.require_finite("critic target", targets, part.action_segments)
            mask = self._valued[part.action_index]
            loss = value_loss(predicted, targets, mask, num_action_tokens=self._num_valued).loss
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        lr = optimiser.lr
        return CriticPass(lr, optimiser.step(batch.scene), total, values, self._targets, self._valued)

    def _action_values(self, part: MicroBatch, into: Tensor) -> Tensor:
        """V before each action token of a micro-batch; what the method reads of it goes `into` the packed values."""
        outputs = self._prefix.values(part.index, part.input_ids)
        values = outputs_before_tokens(outputs, part.action_mask)
        self._batch.scene.require_finite("critic value", values, part.action_segments)
        if self._trainer.values_observations:
            wanted, index = part.up_to_last_action()
            into[index] = outputs_before_tokens(outputs.detach(), wanted)
        into[part.action_index] = values.detach()
        return values
