"""Combinations of `[method]` keys that contradict each other, or the preset, or do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from soliton.algorithms.traits import CRITIC_ONLY, READ_BY_ALL, TRAITS, critic_use
from soliton.config.problems import Problem

if TYPE_CHECKING:
    from soliton.config.run_config import RunConfig

HAS_A_CHECK_OF_ITS_OWN = frozenset({"group_size"})
WANTS_A_CRITIC = {
    "bootstrap": "its values stand for what a limit cut off",
    "mask_actor": "it is what would still learn from truncated trajectories",
}
"""Values of `method.truncated` that mean something only with a critic, and why."""


def unread_problems(config: RunConfig) -> list[Problem]:
    """Keys that were changed and that the algorithm never reads: a knob that does nothing misleads."""
    method, traits = config.method, TRAITS[config.algorithm]
    fields = type(method).model_fields
    return [
        Problem(
            (f"method.{key}", "algorithm"),
            f"method.{key}: got {getattr(method, key)!r}, but {config.algorithm!r} does not read it"
            f"{', for it has no critic' if traits.critic is None and key in CRITIC_ONLY else ''}; drop the key",
        )
        for key in fields
        if key not in traits.reads | READ_BY_ALL | HAS_A_CHECK_OF_ITS_OWN
        and getattr(method, key) != fields[key].default
    ]


def value_problems(config: RunConfig) -> list[Problem]:
    """Value losses and heads that do not fit each other, and numbers of those that were not chosen."""
    method, fields = config.method, type(config.method).model_fields
    if TRAITS[config.algorithm].critic is None:
        return []
    use = critic_use(config.algorithm, method)
    problems = []
    if use.loss == "bce" and use.head != "sigmoid":
        problems.append(
            Problem(
                ("method.value_head", "method.value_loss", "algorithm"),
                f"method.value_head: got {use.head!r}, but method.value_loss = 'bce' reads the value as a probability; "
                "use 'sigmoid', or another value_loss",
            )
        )
    if method.value_loss == "clipped" and use.updates < 2:
        problems.append(
            Problem(
                ("method.value_loss", "method.critic_updates", "algorithm"),
                "method.value_loss: got 'clipped', which bounds what fits after the first one do to a value, but "
                f"{config.algorithm!r} fits {use.updates} time per batch; use method.critic_updates = 2 or more, or "
                "drop the key",
            )
        )
    chosen = {
        "value_clip": ("value_loss", "clipped", use.loss),
        "huber_delta": ("value_loss", "huber", use.loss),
        "value_bound": ("value_head", "arctan", use.head),
    }
    return problems + [
        Problem(
            (f"method.{key}", f"method.{of}"),
            f"method.{key}: got {getattr(method, key)!r}, but method.{of} is {got!r} and only {wanted!r} reads it; "
            f"drop the key, or use {of} = {wanted!r}",
        )
        for key, (of, wanted, got) in chosen.items()
        if got != wanted and getattr(method, key) != fields[key].default
    ]


def truncation_problems(config: RunConfig) -> list[Problem]:
    """What is done with truncated trajectories needs a critic, or a method that can."""
    truncated, keys = config.method.truncated, ("method.truncated", "algorithm")
    if truncated in WANTS_A_CRITIC and TRAITS[config.algorithm].critic is None:
        return [
            Problem(
                keys,
                f"method.truncated: got {truncated!r}, which wants a critic ({WANTS_A_CRITIC[truncated]}), and "
                f"{config.algorithm!r} has none; use 'terminal' or 'drop'",
            )
        ]
    if truncated == "bootstrap" and config.algorithm == "sao-no-skip":
        return [
            Problem(
                keys,
                "method.truncated: got 'bootstrap', but 'sao-no-skip' steps through observations after the last "
                "action, which have no values; use 'terminal', 'drop' or 'mask_actor'",
            )
        ]
    return []
