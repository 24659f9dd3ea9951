"""The learner: what one step does, in the order of paper §3.2, the same for every method.

    start_step(items)   pack -> critic update 1 (its forward gives the values) -> advantages
    update_actor()      one optimiser step of the actor; the caller publishes the weights now, while
    finish_step()       the critic's updates 2..K run, and the step's metrics come back

With `advantage_values = "post_fit"` all K updates, and one more forward, come before the advantages.

Owns both models and their optimisers. Does not know where batches come from, what a version is or who samples.
Guarantees: one optimiser step per update over the whole batch; the result does not depend on the micro-batch plan;
nothing non-finite survives a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from soliton.errors import RunError
from soliton.learner.actor import Actor
from soliton.learner.config import LearnerConfig
from soliton.learner.critic import BatchFits, CriticTrainer
from soliton.learner.method import Method
from soliton.learner.packing import Batch, pack, pack_items
from soliton.learner.state import load_tensors_into, refuse_other_reference, refuse_shared_parameters, tensors_of
from soliton.learner.step_metrics import (
    Metrics,
    actor_metrics,
    advantage_metrics,
    batch_metrics,
    consumption_metrics,
    critic_metrics,
    entropy_metrics,
    group_metrics,
    lag_metrics,
    parity_metrics,
    sides_by_sign,
)
from soliton.learner.step_record import StepRecord, Watch
from soliton.models import Critic
from soliton.reasons import Status
from soliton.store.store import BatchItem
from soliton.types import AttemptId, Trajectory
from soliton.weights import weights_sha256


@dataclass
class _Step:
    """What is in hand between `start_step` and `finish_step`."""

    batch: Batch
    metrics: Metrics
    advantages: Tensor
    staleness: dict[AttemptId, int]
    version: int | None
    log_ratios: Tensor | None = None
    values: Tensor | None = None
    policy_logprobs: Tensor | None = None
    fits: BatchFits | None = None
    fits_left: int = 0
    critic_grad_norms: list[float] = field(default_factory=list)


class Learner:
    """Turns consumed batches into moved weights.

    Attributes:
        actor, critic: the trainers; `critic` is None for methods without one.
        steps: steps finished, critic-only and no-signal ones included.
        no_signal_steps: steps in which the actor did not move for want of signal, over the whole run.
        watch: told of each finished step; None for nobody.
    """

    def __init__(self, *, actor: PreTrainedModel, critic: Critic | None, method: Method, config: LearnerConfig) -> None:
        """Take over both models; the critic's allow-list is resolved and frozen here.

        Raises:
            ValueError: a critic where the method has none, or the reverse; the two models share parameters.
            ConfigError: the allow-list matches nothing.
        """
        if (critic is None) != (method.critic is None):
            raise ValueError(
                f"method {method.name!r} {'has a' if method.critic else 'has no'} critic, but critic is "
                f"{'absent' if critic is None else 'given'}; give a critic exactly where the method uses one"
            )
        self.config = config
        self.method = method
        self.actor = Actor(actor, method, config)
        self._reference_sha256 = _sha256_of(self.actor.reference)
        self.critic: CriticTrainer | None = None
        if critic is not None and method.critic is not None:
            refuse_shared_parameters(actor, critic)
            self.critic = CriticTrainer(critic, method, config)
        self.tracker = method.tracker() if method.tracker is not None else None
        self.steps = 0
        self.no_signal_steps = 0
        self.watch: Watch | None = None
        self._no_signal_in_a_row = 0
        self._step: _Step | None = None

    @property
    def actor_updates(self) -> int:
        """Optimiser steps of the actor."""
        return self.actor.optimiser.updates

    @property
    def critic_updates(self) -> int:
        """Optimiser steps of the critic: K per step."""
        return self.critic.optimiser.updates if self.critic else 0

    @property
    def warming_up(self) -> bool:
        """Whether this step trains the critic alone."""
        return self.critic is not None and self.steps < self.config.critic_warmup_steps

    def start_step(self, items: list[BatchItem], version: int | None = None) -> None:
        """Take a batch: critic update 1 (all K under post_fit), then advantages.

        Args:
            items: the batch.
            version: of the policy as it is now, for metrics; None if it was never published.

        Raises:
            ValueError: an item that cannot be trained (`soliton.learner.packing`).
            RunError: something is not finite, or the method leaves out every trajectory.
        """
        assert self._step is None, "start_step before finish_step of the step before"
        batch = pack_items(
            self._trained(items),
            what=f"step {self.steps}",
            max_padded_tokens=self.config.micro_batch_tokens,
            device=self.actor.model.device,
            truncation=self.method.truncation,
        )
        dropped = None if self.method.truncation.trains else len(items) - len(batch.trajectories)
        metrics = consumption_metrics(items, dropped)
        metrics |= batch_metrics(batch) | lag_metrics(batch, version)
        if self.method.group_size > 1:
            metrics |= group_metrics(batch)
        staleness = {item.trajectory.attempt: item.staleness for item in items}
        step = _Step(batch, metrics, torch.zeros_like(batch.rewards), staleness, version)
        if "log_ratios" in self.method.extra_inputs:
            step.log_ratios = self.actor.log_ratios(batch)
        values, bootstraps = self._first_critic_update(step)
        baselines = self._baselines(batch)
        advantages = self.method.advantages(batch.packed(values, step.log_ratios, baselines, bootstraps))
        step.advantages = self.method.normalise(advantages, batch.action_mask, batch.segment_ids)
        batch.scene.require_finite("advantage", step.advantages, batch.segment_ids)
        metrics |= advantage_metrics(batch, step.advantages)
        self._step = step

    def _trained(self, items: list[BatchItem]) -> list[BatchItem]:
        """What the method learns from; what it leaves out is counted in `trajectory/dropped_truncated`."""
        if self.method.truncation.trains:
            return items
        kept = [item for item in items if item.trajectory.status is not Status.TRUNCATED]
        if not kept:
            raise RunError(
                f"step {self.steps}: a limit cut every one of the {len(items)} trajectories of the batch, and "
                f"method.truncated = 'drop' leaves nothing to learn from. Raise limits.max_tokens, limits.max_turns or "
                f"the time limit, or use method.truncated = 'terminal'"
            )
        return kept

    def _baselines(self, batch: Batch) -> Tensor | None:
        """Baselines from before this batch, which the tracker then takes in; float32 [S]."""
        if self.tracker is None:
            return None
        baselines = self.tracker.baselines(batch.trajectories)
        self.tracker.observe(batch.trajectories, self._drifts(self.tracker.before(batch.trajectories)))
        return torch.tensor(baselines, dtype=torch.float32, device=batch.rewards.device)

    def _drifts(self, earlier: list[Trajectory]) -> dict[str, float]:
        """By prompt, how far the policy of now is from what sampled an earlier trajectory: mean |log-ratio|."""
        if not earlier:
            return {}
        batch = pack(
            earlier,
            what=f"drift before step {self.steps}",
            max_padded_tokens=self.config.micro_batch_tokens,
            device=self.actor.model.device,
        )
        gaps = self.actor.log_ratios(batch).abs().double()
        sums = torch.zeros(len(earlier), dtype=torch.float64, device=gaps.device).index_add(0, batch.segment_ids, gaps)
        counts = torch.tensor([t.num_action_tokens for t in batch.trajectories], device=gaps.device)
        drifts = (sums / counts).tolist()
        return {t.prompt_id: drift for t, drift in zip(batch.trajectories, drifts, strict=True)}

    def _first_critic_update(self, step: _Step) -> tuple[Tensor | None, Tensor | None]:
        """The values that advantages are computed from, and those after the last token; None without a critic."""
        if self.critic is None or self.method.critic is None:
            return None, None
        step.fits = BatchFits(self.critic, step.batch, step.log_ratios)
        first = step.fits.first()
        step.values = first.values
        step.fits_left = self.method.critic.updates - 1
        step.critic_grad_norms.append(first.grad_norm)
        step.metrics |= critic_metrics(step.batch, first)
        if self.method.critic.advantage_values == "pre_fit":
            return first.values, first.bootstrap_values
        self._remaining_critic_updates(step)
        return step.fits.values()

    def _remaining_critic_updates(self, step: _Step) -> None:
        while step.fits_left:
            assert step.fits is not None
            step.critic_grad_norms.append(step.fits.again().grad_norm)
            step.fits_left -= 1

    def update_actor(self) -> bool:
        """Move the actor, unless this is a critic-only step or no token carries signal.

        Returns:
            Whether the actor moved, so whether there is something to publish.

        Raises:
            RunError: something is not finite, or `max_no_signal_steps` in a row had no signal.
        """
        step = self._current()
        if self.warming_up:
            return False
        done = self.actor.update(step.batch, step.advantages)
        step.policy_logprobs = done.logprobs
        step.metrics |= actor_metrics(done) | parity_metrics(step.batch, done.logprobs, step.version)
        step.metrics |= sides_by_sign(step.batch, done.logprobs, step.advantages, self.method.band)
        step.metrics |= entropy_metrics(step.batch, done.logprobs, done.entropies, self.method.band)
        self._no_signal_in_a_row = 0 if done.moved else self._no_signal_in_a_row + 1
        self.no_signal_steps += not done.moved
        if self._no_signal_in_a_row >= self.config.max_no_signal_steps:
            raise RunError(
                f"step {self.steps}: no token carried a non-zero weight times advantage in the last "
                f"{self._no_signal_in_a_row} steps (learner.max_no_signal_steps), so nothing is being learned. Look at "
                f"reward/mean (are all rewards equal?), advantage/std and trust_mask/share (is everything outside the "
                f"band?) of these steps"
            )
        return done.moved

    def finish_step(self) -> Metrics:
        """The critic's remaining updates.

        Returns:
            All metrics of the step. Those of the actor are absent in a critic-only step, those of the critic without
            a critic.
        """
        step = self._current()
        self._remaining_critic_updates(step)
        norms = step.critic_grad_norms
        if norms:
            step.metrics["critic/grad_norm"] = sum(norms) / len(norms)
            step.metrics["critic/grad_norm_max"] = max(norms)
        self.steps += 1
        self._step = None
        if self.watch is not None:
            self.watch(self._record_of(step))
        counters = {"actor_updates": self.actor_updates, "critic_updates": self.critic_updates}
        return step.metrics | {f"learner/{name}": float(number) for name, number in counters.items()}

    def _record_of(self, step: _Step) -> StepRecord:
        return StepRecord(
            step=self.steps,
            actor_updates=self.actor_updates,
            batch=step.batch,
            staleness=step.staleness,
            policy_logprobs=step.policy_logprobs,
            values=step.values,
            advantages=step.advantages,
            band=self.method.band,
        )

    def _current(self) -> _Step:
        assert self._step is not None, "start_step comes first"
        return self._step

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next step depends on: tensors by name, and JSON-able counters.

        Raises:
            RunError: a frozen parameter has moved.
        """
        assert self._step is None, "a checkpoint lies between steps"
        if self.critic is not None:
            self.critic.check_frozen()
        tracked, tracker = self.tracker.state() if self.tracker else ({}, None)
        tensors = tensors_of(self.actor, self.critic) | {f"tracker/{name}": t for name, t in tracked.items()}
        return tensors, {
            "tracker": tracker,
            "method": self.method.name,
            "steps": self.steps,
            "no_signal_steps": self.no_signal_steps,
            "no_signal_in_a_row": self._no_signal_in_a_row,
            "actor_updates": self.actor_updates,
            "critic_updates": self.critic_updates,
            "critic_frozen_sha256": self.critic.frozen_sha256 if self.critic else None,
            "reference_sha256": self._reference_sha256,
        }

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Take over what `state` returned; the next step is then bit-equal to the one it would have been.

        Raises:
            RunError: a name or shape is missing, unknown or different, or the method or the reference policy is another
                one.
        """
        assert self._step is None, "a checkpoint lies between steps"
        if numbers["method"] != self.method.name:
            raise RunError(
                f"checkpoint: written by method {numbers['method']!r}, this run's is {self.method.name!r}; resume "
                f"with the recipe that wrote it"
            )
        refuse_other_reference(self._reference_sha256, numbers.get("reference_sha256"))
        tracked = {n.removeprefix("tracker/"): t for n, t in tensors.items() if n.startswith("tracker/")}
        if self.tracker is not None:
            self.tracker.load_state(tracked, numbers["tracker"])
            tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("tracker/")}
        load_tensors_into(self.actor, self.critic, tensors, numbers)
        self.steps = int(numbers["steps"])
        self.no_signal_steps = int(numbers["no_signal_steps"])
        self._no_signal_in_a_row = int(numbers["no_signal_in_a_row"])


def _sha256_of(reference: PreTrainedModel | None) -> str | None:
    return None if reference is None else weights_sha256(dict(reference.named_parameters()))
