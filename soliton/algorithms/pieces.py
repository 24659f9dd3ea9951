"""The pieces that a recipe chooses for any method: value loss and its tokens, normalisation, truncation, extra terms.

Each is a named function or record; `chosen` puts them into the method that a preset has built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from torch import Tensor

from soliton.advantages import normalised_over_action_tokens, normalised_over_trajectories
from soliton.algorithms.options import MethodOptions
from soliton.learner.critic_use import CriticUse, LossOfValues
from soliton.learner.method import ActorLossInputs, ActorTerm, Method, ValueLossInputs, as_they_are, squared_errors
from soliton.learner.truncation import TRUNCATIONS
from soliton.losses import (
    bce_value_loss,
    clipped_value_loss,
    entropy_loss,
    huber_value_loss,
    positive_example_loss,
    reference_kl_loss,
    separated_states,
)
from soliton.losses.result import LossResult

NORMALISATIONS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "none": as_they_are,
    "batch": normalised_over_trajectories,
    "action_tokens": normalised_over_action_tokens,
}


def chosen(method: Method, options: MethodOptions) -> Method:
    """`method` with the pieces that its use of a critic and the recipe name."""
    critic = method.critic
    if critic is not None:
        method = replace(method, value_loss=value_loss_of(critic, options))
        if critic.states is not None:
            method = replace(method, value_tokens=partial(separated_states, num_states=critic.states))
    return replace(
        method,
        normalise=NORMALISATIONS[options.advantage_normalisation],
        truncation=TRUNCATIONS[options.truncated],
        actor_terms=actor_terms(options),
    )


def value_loss_of(use: CriticUse, options: MethodOptions) -> Callable[[ValueLossInputs], LossResult]:
    """The loss that a critic's values are compared with their targets by."""
    losses: dict[LossOfValues, Callable[[ValueLossInputs], LossResult]] = {
        "mse": squared_errors,
        "clipped": partial(clipped_errors, clip=options.value_clip),
        "huber": partial(huber_errors, delta=options.huber_delta),
        "bce": cross_entropies,
    }
    return losses[use.loss]


def clipped_errors(inputs: ValueLossInputs, clip: float) -> LossResult:
    """Squared error, of values that may move by `clip` from what they were before the first fit."""
    return clipped_value_loss(
        inputs.values,
        inputs.returns,
        inputs.pre_fit_values,
        inputs.mask,
        clip=clip,
        num_action_tokens=inputs.num_tokens,
    )


def huber_errors(inputs: ValueLossInputs, delta: float) -> LossResult:
    """Squared error up to `delta`, linear beyond."""
    return huber_value_loss(
        inputs.values, inputs.returns, inputs.mask, delta=delta, num_action_tokens=inputs.num_tokens
    )


def cross_entropies(inputs: ValueLossInputs) -> LossResult:
    """Cross-entropy of the value, read as a probability, with the return."""
    return bce_value_loss(inputs.outputs, inputs.returns, inputs.mask, num_action_tokens=inputs.num_tokens)


def actor_terms(options: MethodOptions) -> tuple[ActorTerm, ...]:
    """What a recipe adds to the actor loss: the terms whose weight is not 0."""
    terms = (
        ActorTerm(None, options.entropy_weight, minus_entropy, frozenset({"entropies"})),
        ActorTerm("reference_kl", options.kl_weight, reference_kl, frozenset({"reference_logprobs"})),
        ActorTerm("positive_nll", options.nll_weight, positive_examples),
    )
    return tuple(term for term in terms if term.weight)


def minus_entropy(inputs: ActorLossInputs) -> LossResult:
    """Minus the mean entropy of the policy."""
    assert inputs.entropies is not None, "the term asks for them"
    return entropy_loss(
        inputs.entropies, inputs.action_mask, num_action_tokens=inputs.num_action_tokens, trusted=inputs.trusted
    )


def reference_kl(inputs: ActorLossInputs) -> LossResult:
    """Estimated KL from the policy that training started from."""
    assert inputs.reference_logprobs is not None, "the term asks for them"
    return reference_kl_loss(
        inputs.policy_logprobs,
        inputs.reference_logprobs,
        inputs.action_mask,
        num_action_tokens=inputs.num_action_tokens,
        trusted=inputs.trusted,
    )


def positive_examples(inputs: ActorLossInputs) -> LossResult:
    """Mean negative log-prob of the trajectories with a positive total reward."""
    assert inputs.positive is not None, "the learner says who succeeded"
    return positive_example_loss(
        inputs.policy_logprobs,
        inputs.positive,
        inputs.action_mask,
        num_positive_tokens=inputs.num_positive_tokens,
        trusted=inputs.trusted,
    )
