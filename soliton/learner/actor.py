"""The actor's update: one optimiser step over the whole batch, gradients accumulated over micro-batches.

Owns the actor, its optimiser and, where a term of the loss asks for it, the reference policy. Does not know where
advantages come from.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel

from soliton.learner.config import LearnerConfig
from soliton.learner.method import ActorLossInputs, Method
from soliton.learner.microbatches import MicroBatch
from soliton.learner.optimiser import Optimiser, warm_up
from soliton.learner.packing import Batch
from soliton.losses import band_metrics
from soliton.models import causal_hidden, lm_head_weight, outputs_before_tokens, token_logprobs
from soliton.models.trunk import check_plain_projection


@dataclass(frozen=True)
class ActorPass:
    """What one pass over the batch gave.

    Attributes:
        moved: False where no token carried signal; then neither optimiser nor schedule advanced (fault E5).
        lr: learning rate of the update, or the one that it would have had.
        grad_norm: before the clip; 0 without signal.
        loss: of the whole batch, its terms included.
        entropies: nats, float32 [T], 0 off the mask.
        logprobs: float32 [T] of the policy before the update, 0 off the mask.
        band: sums and counts of `band_metrics` over the whole batch.
        signal: bool [T], action tokens with a non-zero gradient.
        terms: metric of each term of the loss -> its value over the whole batch, without its weight.
    """

    moved: bool
    lr: float
    grad_norm: float
    loss: float
    entropies: Tensor
    logprobs: Tensor
    band: dict[str, float]
    signal: Tensor
    terms: dict[str, float]


@dataclass
class _Sums:
    """What is added up over micro-batches."""

    loss: float = 0.0
    terms: dict[str, float] = field(default_factory=dict)


class Actor:
    """The policy being trained.

    Attributes:
        model: the policy.
        reference: a frozen copy of what the model was when this was made; None where no term of the loss asks for it.
    """

    def __init__(self, model: PreTrainedModel, method: Method, config: LearnerConfig) -> None:
        check_plain_projection(model)
        self.model = model.train(mode=False)  # dropout in the trainer makes the ratio noise
        self.reference: PreTrainedModel | None = None
        if method.asks_for("reference_logprobs"):
            self.reference = copy.deepcopy(model).requires_grad_(False)
        self._loss = method.actor_loss
        self._terms = method.actor_terms
        self._entropy_gradient = method.asks_for("entropies")
        self._low, self._high = method.band
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
        totals = _Sums()
        logprobs, entropies = torch.zeros_like(batch.rewards), torch.zeros_like(batch.rewards)
        signal = torch.zeros_like(batch.action_mask)
        for part in batch.micro_batches:
            policy, entropy = action_logprobs(
                self.model, part, batch.temperatures, entropy_gradient=self._entropy_gradient
            )
            batch.scene.require_finite("policy log-prob", policy, part.action_segments)
            inputs = self._inputs(batch, part, policy.detach(), entropy.detach(), advantages)
            gradients = self._gradients(batch, part, inputs, totals)
            signal[part.action_index] = torch.stack([gradient != 0 for gradient in gradients]).any(0)
            if bool(signal[part.action_index].any()):  # otherwise the trunk's gradient is exactly 0: do not compute it
                torch.autograd.backward([policy, entropy][: len(gradients)], gradients)
            logprobs[part.action_index] = policy.detach()
            entropies[part.action_index] = entropy.detach()
        lr, moved = self.optimiser.lr, bool(signal.any())
        if not moved:
            self.optimiser.discard_gradients()
        return ActorPass(
            moved=moved,
            lr=lr,
            grad_norm=self.optimiser.step(batch.scene) if moved else 0.0,
            loss=totals.loss,
            entropies=entropies,
            logprobs=logprobs,
            band=band_metrics(logprobs, batch.rollout_logprobs, batch.action_mask, low=self._low, high=self._high),
            signal=signal,
            terms=totals.terms,
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

    def _inputs(
        self, batch: Batch, part: MicroBatch, policy: Tensor, entropy: Tensor, advantages: Tensor
    ) -> ActorLossInputs:
        """What the loss of a micro-batch reads; log-probs and entropies are leaves of a graph of their own."""
        return ActorLossInputs(
            policy_logprobs=policy.requires_grad_(),
            rollout_logprobs=batch.rollout_logprobs[part.action_index],
            advantages=advantages[part.action_index],
            action_mask=torch.ones_like(policy, dtype=torch.bool),
            trusted=batch.trusted[part.action_index],
            num_action_tokens=batch.num_action_tokens,
            segment_ids=part.action_segments,
            num_trajectories=len(batch.trajectories),
            positive=batch.positive[part.action_segments],
            num_positive_tokens=batch.num_positive_tokens,
            entropies=entropy.requires_grad_() if self._entropy_gradient else None,
            reference_logprobs=self._reference_logprobs(batch, part),
        )

    def _reference_logprobs(self, batch: Batch, part: MicroBatch) -> Tensor | None:
        if self.reference is None:
            return None
        with torch.no_grad():
            logprobs, _ = action_logprobs(self.reference, part, batch.temperatures)
        batch.scene.require_finite("reference log-prob", logprobs, part.action_segments)
        return logprobs

    def _gradients(self, batch: Batch, part: MicroBatch, inputs: ActorLossInputs, totals: _Sums) -> tuple[Tensor, ...]:
        """The gradient with respect to log-probs (and entropies): what says whether a token carries signal."""
        loss = self._loss(inputs).loss
        for term in self._terms:
            added = term.loss(inputs).loss
            if term.metric is not None:
                totals.terms[term.metric] = totals.terms.get(term.metric, 0.0) + float(added.detach())
            loss = loss + term.weight * added
        batch.scene.require_finite("actor loss", loss, None)
        totals.loss += float(loss.detach())
        leaves = [inputs.policy_logprobs] + ([] if inputs.entropies is None else [inputs.entropies])
        gradients = torch.autograd.grad(loss, leaves)
        for gradient in gradients:
            batch.scene.require_finite("gradient of the actor loss", gradient, part.action_segments)
        return gradients


def action_logprobs(
    model: PreTrainedModel, part: MicroBatch, temperatures: Tensor, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-prob (with gradient) and entropy, float32 [n], of each action token given the tokens before it.

    Args:
        model: a causal language model.
        part: one micro-batch.
        temperatures: float32 [S] of the whole pack; logits are divided by it.
        entropy_gradient: whether the entropy carries a gradient, too.
    """
    hidden = outputs_before_tokens(causal_hidden(model, part.input_ids), part.action_mask)
    return token_logprobs(
        hidden,
        lm_head_weight(model),
        part.labels,
        temperatures[part.action_segments],
        entropy_gradient=entropy_gradient,
    )
