"""The critic's updates: each is one optimiser step over the whole batch; the first one's forward gives the values.

Owns the critic and its optimiser. What lies below the first trained projection is computed once per batch and reused by
the K fits. Guarantees: what is frozen is out of the optimiser and its hash never changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from soliton.errors import ConfigError, RunError
from soliton.learner.alarms import SHOWN, Scene
from soliton.learner.config import LearnerConfig
from soliton.learner.critic_use import CriticUse
from soliton.learner.method import Method, PackedBatch, ValueLossInputs
from soliton.learner.microbatches import MicroBatch
from soliton.learner.optimiser import Optimiser, warm_up
from soliton.learner.packing import Batch
from soliton.models import (
    Critic,
    FrozenPrefix,
    ValueHead,
    freeze,
    frozen_sha256,
    outputs_after_rows,
    outputs_before_tokens,
    resolve_trainable,
)

Targets = Callable[[MicroBatch, Tensor], Tensor]
"""Micro-batch and the values over its tokens -> critic targets over its tokens, float32."""


@dataclass(frozen=True)
class CriticPass:
    """What one fit gave.

    Attributes:
        lr: learning rate of the update.
        grad_norm: before the clip.
        loss: the method's value loss over the batch, of the values before the update.
        values: float32 [T] before the update, 0 off the mask; V of the prefix before each action token.
        bootstrap_values: float32 [S] before the update, V after the last token where the batch wants it, else 0; None
            where no trajectory of the batch does.
        targets: float32 [T], 0 off the mask.
        valued: bool [T], the action tokens that the loss was taken on.
    """

    lr: float
    grad_norm: float
    loss: float
    values: Tensor
    bootstrap_values: Tensor | None
    targets: Tensor
    valued: Tensor


def head_of(use: CriticUse | None) -> ValueHead:
    """The value head that a method's critic has; linear without a method that has one."""
    return ValueHead() if use is None else ValueHead(use.head, use.bound)


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
        _refuse_other_head(critic, use, method.name)
        self.model = critic.train(mode=False)
        self.returns: Callable[[PackedBatch], Tensor] = method.returns
        self.value_loss = method.value_loss
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
        self._pre_fit = torch.zeros_like(batch.rewards)
        self._bootstraps: Tensor | None = None
        if bool(batch.bootstrapped.any()):
            self._bootstraps = torch.zeros(len(batch.trajectories), device=batch.rewards.device)

    def first(self) -> CriticPass:
        """Update once. The targets come from the values of this very forward, trajectory by trajectory.

        So a method's returns may depend on the values of the trajectory itself, and on no other's.
        """
        return self._fit(self._pre_fit, self._targets_from_values)

    def again(self) -> CriticPass:
        """Update once more, against the targets of the first fit."""
        return self._fit(torch.zeros_like(self._batch.rewards), lambda part, _values: self._targets[part.tokens])

    def values(self) -> tuple[Tensor, Tensor | None]:
        """V of the prefix before each action token, float32 [T], 0 where not asked for, and after the last; detached.

        The second is as `CriticPass.bootstrap_values`.
        """
        packed = torch.zeros_like(self._batch.rewards)
        with torch.no_grad():
            for part in self._batch.micro_batches:
                self._read(part, packed)
        return packed, self._bootstraps

    def _targets_from_values(self, part: MicroBatch, values: Tensor) -> Tensor:
        targets = self._trainer.returns(self._batch.packed_part(part, values, self._log_ratios, self._bootstraps))
        self._targets[part.tokens] = targets
        return targets

    def _fit(self, values: Tensor, targets_of: Targets) -> CriticPass:
        """One update; the values before it go into `values`, float32 [T] of zeros."""
        batch, optimiser, total = self._batch, self._trainer.optimiser, 0.0
        for part in batch.micro_batches:
            outputs, predicted = self._read(part, values)
            targets = targets_of(part, values[part.tokens])[part.action_index - part.tokens.start]
            targets = reachable_targets(batch.scene, self._trainer.model.head, targets, part.action_segments)
            mask = self._valued[part.action_index]
            inputs = ValueLossInputs(
                outputs, predicted, targets, self._pre_fit[part.action_index], mask, self._num_valued
            )
            loss = self._trainer.value_loss(inputs).loss
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        return CriticPass(
            lr=optimiser.lr,
            grad_norm=optimiser.step(batch.scene),
            loss=total,
            values=values,
            bootstrap_values=None if self._bootstraps is None else self._bootstraps.clone(),
            targets=self._targets,
            valued=self._valued,
        )

    def _read(self, part: MicroBatch, into: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and V before each action token of a micro-batch; what the method reads of V goes `into` the pack."""
        head = self._trainer.model.head
        everywhere = self._prefix.outputs(part.index, part.input_ids)
        outputs = outputs_before_tokens(everywhere, part.action_mask)
        values = head.values(outputs)
        self._batch.scene.require_finite("critic value", values, part.action_segments)
        if self._trainer.values_observations:
            wanted, index = part.up_to_last_action()
            into[index] = head.values(outputs_before_tokens(everywhere.detach(), wanted))
        into[part.action_index] = values.detach()
        if self._bootstraps is not None:
            after = head.values(outputs_after_rows(everywhere.detach(), part.lengths))
            wanted = self._batch.bootstrapped[part.segments]
            self._bootstraps[part.segments] = torch.where(wanted, after, 0.0)
        return outputs, values


TARGET_TOLERANCE = 1e-4
"""By how much a target may lie outside of a head's bounds, from rounding; in units of reward."""


def reachable_targets(scene: Scene, head: ValueHead, targets: Tensor, segments: Tensor) -> Tensor:
    """The targets, inside the bounds of the head's values.

    Raises:
        RunError: a target is not finite, or no value of the head can be near it; names the trajectories.
    """
    scene.require_finite("critic target", targets, segments)
    low, high = head.bounds
    if math.isinf(high):
        return targets
    outside = (targets < low - TARGET_TOLERANCE) | (targets > high + TARGET_TOLERANCE)
    if bool(outside.any()):
        names = [scene.names[i] for i in sorted(set(segments[outside].tolist()))]
        widen = "set method.value_bound, " if head.name == "arctan" else ""
        raise RunError(
            f"{scene.what}: the critic's targets reach from {float(targets.min()):g} to {float(targets.max()):g}, but "
            f"the values of a {head.name} head lie in [{low:g}, {high:g}]; trajectories: {', '.join(names[:SHOWN])}. "
            f"Scale the rewards into that range, {widen}or use method.value_head = 'linear' with method.value_loss = "
            f"'mse'"
        )
    return targets.clamp(low, high)


def _refuse_other_head(critic: Critic, use: CriticUse, method: str) -> None:
    if critic.head != head_of(use):
        raise ConfigError(
            f"the critic that this run starts from has the value head {critic.head.as_data()}, and {method!r} wants "
            f"{head_of(use).as_data()}: its outputs mean something else. Pretrain values under this recipe, start "
            f"from a run without a critic, or use method.value_head = {critic.head.name!r} with a value_loss that fits"
        )
