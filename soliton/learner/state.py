"""The learner's state as named tensors and JSON-able numbers, and its strict loading (fault J5).

Names: `actor/{parameter}`, `critic/{parameter}` (frozen ones too), `actor_optimiser/{parameter}/{moment}`,
`critic_optimiser/{parameter}/{moment}`. Tensors are copies on the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from soliton.errors import RunError
from soliton.learner.actor import Actor
from soliton.learner.critic import CriticTrainer
from soliton.learner.optimiser import Optimiser, require_same_names


def refuse_shared_parameters(actor: nn.Module, critic: nn.Module) -> None:
    """The critic is frozen in part and trained at another rate: it must own a copy of what it shares with the actor.

    Raises:
        ValueError: some parameter of both is the same memory.
    """
    of_actor = {parameter.data_ptr(): name for name, parameter in actor.named_parameters()}
    for name, parameter in critic.named_parameters():
        if parameter.data_ptr() in of_actor:
            raise ValueError(
                f"critic parameter {name} is the actor's {of_actor[parameter.data_ptr()]}: freezing or training one "
                f"would change the other. Build the critic with Critic.from_causal_lm, which copies"
            )


def tensors_of(actor: Actor, critic: CriticTrainer | None) -> dict[str, Tensor]:
    """Copies of all parameters and moments."""
    tensors = _prefixed("actor", dict(actor.model.named_parameters()))
    tensors |= _prefixed("actor_optimiser", actor.optimiser.state())
    if critic is not None:
        tensors |= _prefixed("critic", dict(critic.model.named_parameters()))
        tensors |= _prefixed("critic_optimiser", critic.optimiser.state())
    return tensors


def load_tensors_into(
    actor: Actor, critic: CriticTrainer | None, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]
) -> None:
    """Copy parameters and moments back in place, nothing missing and nothing left over.

    Raises:
        RunError: a name or shape differs, or the frozen part of the critic is not the one that was saved.
    """
    parts = {"actor", "actor_optimiser"} | ({"critic", "critic_optimiser"} if critic is not None else set())
    require_same_names("parts of the learner", parts, {name.partition("/")[0] for name in tensors} | parts)
    _load_parameters("actor", actor.model, tensors)
    _load_optimiser("actor_optimiser", actor.optimiser, tensors, int(numbers["actor_updates"]))
    if critic is not None:
        _load_parameters("critic", critic.model, tensors)
        _load_optimiser("critic_optimiser", critic.optimiser, tensors, int(numbers["critic_updates"]))
        critic.adopt_frozen()
        if critic.frozen_sha256 != numbers["critic_frozen_sha256"]:
            raise RunError(
                f"checkpoint: the critic's frozen parameters hash to {critic.frozen_sha256[:12]}, "
                f"{str(numbers['critic_frozen_sha256'])[:12]} was saved: other parameters are frozen in this recipe, "
                f"or the checkpoint is damaged"
            )


def refuse_other_reference(now: str | None, saved: str | None) -> None:
    """The reference policy is what the run started from, and is made from it again, so it is not in the checkpoint.

    Raises:
        RunError: it hashes to something else than when the checkpoint was written.
    """
    if now != saved:
        raise RunError(
            f"checkpoint: the reference policy of the KL term hashes to {str(now)[:12]}, {str(saved)[:12]} was saved: "
            f"what the run started from (init.model, init.run or stages/sft) has changed since; restore it"
        )


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}/"): t for name, t in tensors.items() if name.startswith(f"{prefix}/")}


def _load_parameters(prefix: str, module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    parameters = dict(module.named_parameters())
    saved = _under(prefix, tensors)
    require_same_names(f"parameters of the {prefix}", set(parameters), set(saved))
    with torch.no_grad():
        for name, parameter in parameters.items():
            if saved[name].shape != parameter.shape or saved[name].dtype != parameter.dtype:
                raise RunError(
                    f"checkpoint: {prefix}/{name} is {saved[name].dtype} {tuple(saved[name].shape)}, the model's is "
                    f"{parameter.dtype} {tuple(parameter.shape)}; it was written by another model"
                )
            parameter.copy_(saved[name])


def _load_optimiser(prefix: str, optimiser: Optimiser, tensors: Mapping[str, Tensor], updates: int) -> None:
    optimiser.load_state(_under(prefix, tensors), updates)
