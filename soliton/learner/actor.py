"""The actor's update: one optimiser step over the whole batch, gradients accumulated over micro-batches.

Owns the actor and its optimiser. Does not know where advantages come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from soliton.learner.config import LearnerConfig
from soliton.learner.method import ActorLossInputs
from soliton.learner.microbatches import MicroBatch
from soliton.learner.optimiser import Optimiser, warm_up
from soliton.learner.packing import Batch
from soliton.losses import band_metrics
from soliton.losses.result import LossResult
from soliton.models import causal_hidden, lm_head_weight, outputs_before_tokens, token_logprobs
from soliton.models.trunk import check_plain_projection


@dataclass(frozen=True)
class ActorPass:
    """What one pass over the batch gave.

    Attributes:
        moved: False where no token carried signal; then neither optimiser nor schedule advanced (fault E5).
        lr: learning rate of the update, or the one that it would have had.
        grad_norm: before the clip; 0 without signal.
        loss: of the whole batch.
        entropy: nats per action token, mean.
        logprobs: float32 [T] of the policy before the update, 0 off the mask.
        band: sums and counts of `band_metrics` over the whole batch.
        signal_tokens: action tokens with a non-zero gradient.
    """

    moved: bool
    lr: float
    grad_norm: float
    loss: float
    entropy: float
    logprobs: Tensor
    band: dict[str, float]
    signal_tokens: int


class Actor:
    """The policy being trained."""

    def __init__(
        self,
        model: PreTrainedModel,
        loss: Callable[[ActorLossInputs], LossResult],
        band: tuple[float, float],
        config: LearnerConfig,
    ) -> None:
        check_plain_projection(model)
        self.model = model.train(mode=False)  # dropout in the trainer makes the ratio noise (PAPER section 10)
        self._loss = loss
        self._low, self._high = band
        self.optimiser = Optimiser(
            dict(model.named_parameters()),
            lr=config.actor_lr,
            schedule=warm_up(config.actor_lr_warmup_updates),
            betas=config.betas,
            weight_decay=config.weight_decay,
            grad_clip=config.grad_clip,
        )

    def update(self, batch: Batch, advantages: Tensor) -> ActorPass:
        """Accumulate the gradient of the method's loss over the batch and take one optimiser step.

        Args:
            batch: the optimiser batch.
            advantages: float32 [T].

        Raises:
            RunError: a log-prob, the loss, the gradient norm or a parameter is not finite.
        """
        loss, entropy_sum, signal_tokens = 0.0, 0.0, 0
        logprobs = torch.zeros_like(batch.rewards)
        for part in batch.micro_batches:
            policy, entropy = action_logprobs(self.model, part, batch.temperatures)
            batch.scene.require_finite("policy log-prob", policy, part.action_segments)
            result, gradient = self._loss_and_gradient(batch, part, policy.detach(), advantages)
            if bool(gradient.any()):  # otherwise the trunk's gradient is exactly 0: do not compute it
                policy.backward(gradient)  # type: ignore[no-untyped-call]
            logprobs[part.action_index] = policy.detach()
            loss += float(result.loss.detach())
            entropy_sum += float(entropy.sum())
            signal_tokens += int(gradient.count_nonzero())
        lr, moved = self.optimiser.lr, signal_tokens > 0
        if not moved:
            self.optimiser.discard_gradients()
        return ActorPass(
            moved=moved,
            lr=lr,
            grad_norm=self.optimiser.step(batch.scene) if moved else 0.0,
            loss=loss,
            entropy=entropy_sum / batch.num_action_tokens,
            logprobs=logprobs,
            band=band_metrics(logprobs, batch.rollout_logprobs, batch.action_mask, low=self._low, high=self._high),
            signal_tokens=signal_tokens,
        )

    def log_ratios(self, batch: Batch) -> Tensor:
        """Log policy minus log rollout before the step, float32 [T], 0 off the mask; one forward, no gradient."""
        ratios = torch.zeros_like(batch.rewards)
        with torch.no_grad():
            for part in batch.micro_batches:
                policy, _ = action_logprobs(self.model, part, batch.temperatures)
                batch.scene.require_finite("policy log-prob", policy, part.action_segments)
                ratios[part.action_index] = policy - batch.rollout_logprobs[part.action_index]
        return ratios

    def _loss_and_gradient(
        self, batch: Batch, part: MicroBatch, policy: Tensor, advantages: Tensor
    ) -> tuple[LossResult, Tensor]:
        """The loss, and its gradient with respect to the log-probs: what says whether a token carries signal."""
        policy.requires_grad_()
        result = self._loss(
            ActorLossInputs(
                policy_logprobs=policy,
                rollout_logprobs=batch.rollout_logprobs[part.action_index],
                advantages=advantages[part.action_index],
                action_mask=torch.ones_like(policy, dtype=torch.bool),
                trusted=batch.trusted[part.action_index],
                num_action_tokens=batch.num_action_tokens,
                segment_ids=part.action_segments,
                num_trajectories=len(batch.trajectories),
            )
        )
        batch.scene.require_finite("actor loss", result.loss, None)
        (gradient,) = torch.autograd.grad(result.loss, policy)
        batch.scene.require_finite("gradient of the actor loss", gradient, part.action_segments)
        return result, gradient


def action_logprobs(model: PreTrainedModel, part: MicroBatch, temperatures: Tensor) -> tuple[Tensor, Tensor]:
    """Log-prob (with gradient) and entropy (without), float32 [n], of each action token given the tokens before it.

    Args:
        model: a causal language model.
        part: one micro-batch.
        temperatures: float32 [S] of the whole pack; logits are divided by it.
    """
    hidden = outputs_before_tokens(causal_hidden(model, part.input_ids), part.action_mask)
    return token_logprobs(hidden, lm_head_weight(model), part.labels, temperatures[part.action_segments])
