"""Value pretraining: the critic learns the initial policy's returns before RL (paper §3.2).

Monte-Carlo targets (lambda 1, gamma 1; a rollout that a limit cut counts with what it earned), all parameters train, an
eighth of the prompts is held out and its explained variance decides when to stop. The paper calls the size of the
corpus essential and gives none; the result says it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from soliton.advantages import skip_observation_gae
from soliton.errors import RunError
from soliton.learner.config import ValuePretrainingConfig
from soliton.learner.critic import reachable_targets
from soliton.learner.method import ValueLossInputs, squared_errors
from soliton.learner.microbatches import MicroBatch
from soliton.learner.optimiser import Optimiser, warm_up
from soliton.learner.packing import Batch, pack
from soliton.learner.sft import shuffled_batches
from soliton.losses import ExplainedVariance
from soliton.losses.result import LossResult
from soliton.models import Critic, outputs_before_tokens
from soliton.types import Trajectory, stable_seed

HELD_OUT_SHARE = 8
"""One prompt in this many is held out."""
ValueLoss = Callable[[ValueLossInputs], LossResult]


@dataclass(frozen=True)
class ValueEpoch:
    """One pass over the corpus.

    Attributes:
        epoch: number, from 1; 0 is the critic before training.
        max_epochs: most that will follow.
        loss: of the values of the training part, mean over its action tokens, each before its update; NaN at epoch 0.
        explained_variance: on the held-out part, after the epoch.
    """

    epoch: int
    max_epochs: int
    loss: float
    explained_variance: float


@dataclass(frozen=True)
class ValuePretrainingResult:
    """Numbers for the manifest of the critic checkpoint.

    Attributes:
        corpus_size: trajectories, both parts.
        num_train, num_held_out: trajectories of each part; no prompt is in both.
        explained_variance_before, explained_variance_after: on the held-out part.
        epochs: passes made.
        best_epoch: the one whose critic was kept; 0 is the critic from before.
        updates: optimiser steps made.
    """

    corpus_size: int
    num_train: int
    num_held_out: int
    explained_variance_before: float
    explained_variance_after: float
    epochs: int
    best_epoch: int
    updates: int


def pretrain_values(
    critic: Critic,
    trajectories: Sequence[Trajectory],
    config: ValuePretrainingConfig,
    *,
    seed: int,
    progress: Callable[[ValueEpoch], None] | None = None,
    value_loss: ValueLoss = squared_errors,
) -> ValuePretrainingResult:
    """Train all of `critic` in place; it ends as it was after the epoch with the best held-out explained variance.

    Args:
        critic: every parameter is set to train, and stays so: the learner freezes what its method freezes.
        trajectories: rollouts of the initial policy on the RL prompts, of at least two prompts.
        config: see `ValuePretrainingConfig`.
        seed: decides which prompts are held out, and the order.
        progress: called before the first and after each epoch.
        value_loss: of the method that the critic is for.

    Raises:
        ValueError: fewer than two prompts, or a trajectory that cannot be trained.
        RunError: something is not finite, or all held-out returns are equal.
    """
    train, held_out = split_by_prompt(trajectories, seed)
    critic.train(mode=False).requires_grad_(True)
    optimiser = Optimiser(
        dict(critic.named_parameters()),
        lr=config.lr,
        schedule=warm_up(config.lr_warmup_updates),
        betas=config.betas,
        weight_decay=config.weight_decay,
        grad_clip=config.grad_clip,
    )
    report = progress if progress is not None else _ignore
    before = held_out_explained_variance(critic, held_out, config.micro_batch_tokens)
    report(ValueEpoch(0, config.max_epochs, float("nan"), before))
    best = _Best(critic, before)
    for epoch in range(1, config.max_epochs + 1):
        loss = _train_epoch(critic, optimiser, train, config, value_loss, seed=seed, epoch=epoch)
        now = held_out_explained_variance(critic, held_out, config.micro_batch_tokens)
        report(ValueEpoch(epoch, config.max_epochs, loss, now))
        best.offer(critic, now, epoch, config.min_gain)
        if epoch - best.last_gain >= config.patience:
            break
    best.restore(critic)
    return ValuePretrainingResult(
        corpus_size=len(trajectories),
        num_train=len(train),
        num_held_out=len(held_out),
        explained_variance_before=before,
        explained_variance_after=best.explained_variance,
        epochs=epoch,
        best_epoch=best.epoch,
        updates=optimiser.updates,
    )


class _Best:
    """The best critic so far, and when the explained variance last rose by enough to go on."""

    def __init__(self, critic: Critic, explained_variance: float) -> None:
        self.epoch = 0
        self.explained_variance = explained_variance
        self.last_gain = 0
        self._at_last_gain = explained_variance
        self._parameters = _copy(critic)

    def offer(self, critic: Critic, explained_variance: float, epoch: int, min_gain: float) -> None:
        if explained_variance > self.explained_variance:
            self.explained_variance, self.epoch, self._parameters = explained_variance, epoch, _copy(critic)
        if explained_variance >= self._at_last_gain + min_gain:
            self._at_last_gain, self.last_gain = explained_variance, epoch

    def restore(self, critic: Critic) -> None:
        with torch.no_grad():
            for name, parameter in critic.named_parameters():
                parameter.copy_(self._parameters[name])


def _copy(critic: Critic) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in critic.named_parameters()}


def _ignore(_epoch: ValueEpoch) -> None:
    return None


def split_by_prompt(trajectories: Sequence[Trajectory], seed: int) -> tuple[list[Trajectory], list[Trajectory]]:
    """(train, held out): an eighth of the prompts, at least one, with all their trajectories, is held out.

    Raises:
        ValueError: fewer than two prompts.
    """
    prompts = sorted({t.prompt_id for t in trajectories})
    if len(prompts) < 2:
        raise ValueError(
            f"value pretraining needs trajectories of at least 2 prompts, one of them to hold out, got {len(prompts)}"
        )
    chosen = np.random.default_rng(seed).permutation(len(prompts))[: max(1, len(prompts) // HELD_OUT_SHARE)]
    held = {prompts[i] for i in chosen}
    return [t for t in trajectories if t.prompt_id not in held], [t for t in trajectories if t.prompt_id in held]


def held_out_explained_variance(critic: Critic, trajectories: Sequence[Trajectory], max_padded_tokens: int) -> float:
    """Explained variance of the Monte-Carlo returns over all action tokens.

    Raises:
        RunError: all returns are equal, so there is none (and no plateau to stop at), or a value is not finite.
    """
    batch = pack(
        trajectories,
        what="held-out values",
        max_padded_tokens=max_padded_tokens,
        device=critic.value_head.weight.device,
    )
    returns = monte_carlo_returns(batch)
    total = ExplainedVariance()
    with torch.no_grad():
        for part in batch.micro_batches:
            _, values = _action_values(critic, batch, part)
            mask = torch.ones_like(values, dtype=torch.bool)
            total = total.merge(ExplainedVariance.of(values, returns[part.action_index], mask))
    explained = total.value
    if math.isnan(explained):
        raise RunError(
            f"value pretraining: all returns of the {len(trajectories)} held-out trajectories are equal, so there is "
            f"no variance to explain. Use more rollouts, or a start that solves the task sometimes but not always"
        )
    return explained


def monte_carlo_returns(batch: Batch) -> Tensor:
    """Sum of the rewards from each action token on (lambda 1, gamma 1), float32 [T], 0 off the mask."""
    nothing = torch.zeros_like(batch.rewards)
    return skip_observation_gae(
        nothing, batch.rewards, batch.action_mask, gamma=1.0, lam=1.0, segment_ids=batch.segment_ids
    )


def _action_values(critic: Critic, batch: Batch, part: MicroBatch) -> tuple[Tensor, Tensor]:
    """Outputs and V before each action token, with gradient."""
    outputs = outputs_before_tokens(critic.outputs(part.input_ids), part.action_mask)
    values = critic.head.values(outputs)
    batch.scene.require_finite("critic value", values, part.action_segments)
    return outputs, values


def _train_epoch(
    critic: Critic,
    optimiser: Optimiser,
    trajectories: Sequence[Trajectory],
    config: ValuePretrainingConfig,
    value_loss: ValueLoss,
    *,
    seed: int,
    epoch: int,
) -> float:
    squared, tokens = 0.0, 0
    order = shuffled_batches(len(trajectories), config.batch_size, 1, stable_seed(seed, "value pretraining", epoch))
    for number, chosen in enumerate(order, start=1):
        batch = pack(
            [trajectories[i] for i in chosen],
            what=f"value pretraining, epoch {epoch}, update {number}",
            max_padded_tokens=config.micro_batch_tokens,
            device=critic.value_head.weight.device,
        )
        returns = monte_carlo_returns(batch)
        for part in batch.micro_batches:
            outputs, values = _action_values(critic, batch, part)
            targets = reachable_targets(batch.scene, critic.head, returns[part.action_index], part.action_segments)
            mask = torch.ones_like(values, dtype=torch.bool)
            loss = value_loss(
                ValueLossInputs(outputs, values, targets, values.detach(), mask, batch.num_action_tokens)
            ).loss
            loss.backward()  # type: ignore[no-untyped-call]
            squared += float(loss.detach()) * batch.num_action_tokens
        tokens += batch.num_action_tokens
        optimiser.step(batch.scene)
    return squared / tokens
